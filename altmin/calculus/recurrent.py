"""The maps of the layers in time.

A recurrent layer is handled as a linear map and an activation across time. The map gives the codes

    c_t = U x_t + W h_{t-1} + b,

linear in x_t and in the weights with every h_{t-1} given; the activation makes h_1..h_T of all codes (`across_time`).

Sequences are (samples, steps, features) to the outside and lie in memory step by step, as the fused recurrence leaves
them; here they are handled as (steps, samples, features), so that nothing is copied.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from altmin.calculus import products
from altmin.calculus.across_time import Activation, GRUOfCodes, LSTMOfCodes, TanhOfCodes, h_of, later
from altmin.calculus.base import Map, Params
from altmin.calculus.context import LOCAL, Context
from altmin.calculus.linear import Linear
from altmin.layers import Recurrent, opaque_recurrence


class Steps(NamedTuple):
    """Values that a recurrent layer saves, of shape (steps, samples, features): its input, h_1..h_T, and which steps
    are real (None: all)."""

    x: Tensor
    h: Tensor
    real: Tensor | None


ACTIVATIONS = {"RNN_TANH": TanhOfCodes, "GRU": GRUOfCodes, "LSTM": LSTMOfCodes}


class Recurrence(Map):
    """A recurrent layer. Its forward pass is the whole recurrence; its local calculus is that of the map to the codes,
    with every h_{t-1} given: it belongs to the code of its own step. `activation` and `feedback` are what else moving
    the codes takes."""

    affine = True
    matrices = (0, 1)
    groups = 1
    rows, places = Linear.rows, Linear.places

    def __init__(self, module: Any):
        super().__init__(module)
        if isinstance(module, Recurrent):
            self.names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0")
        self.is_linear = isinstance(module, Recurrent)
        self.mode: str = module.mode
        self.padded: bool = module.padded
        self.marked = self.padded and not self.is_linear
        """True if the output has, besides h, a feature that marks the real steps and does not move."""
        self.hidden: int = module.hidden_size
        self.features = self.hidden + self.marked

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Steps]:
        steps, real = self.module.parts(x)
        steps, real = steps.transpose(0, 1).contiguous(), None if real is None else real.transpose(0, 1)
        weights = [q.to(x.dtype) for q in (*p[:2], *self._biases(p))]
        h = opaque_recurrence(self.mode, steps, *weights).to(x.dtype)
        h = h if real is None else h * real
        output = torch.cat([h, real], -1) if self.marked and real is not None else h
        return output.transpose(0, 1), Steps(steps, h, real)

    def vjp(self, p: Params, saved: Steps, v: Tensor) -> Tensor:
        u = products.matmul(self._of_input(v), p[0])
        return F.pad(u, (0, 1)) if self.padded else u

    def jvp(self, p: Params, saved: Steps, u: Tensor) -> Tensor:
        return self._joined(products.linear(u[..., :-1] if self.padded else u, p[0]), None)

    def grads(self, p: Params, saved: Steps, v: Tensor) -> Params:
        v = v.transpose(0, 1)
        of_input, of_state = self._of_input(v), self._of_state(v)
        grads = [_product(of_input, saved.x), _product(of_state[1:], saved.h[:-1])]
        if len(p) > 2:
            grads.append(_total(of_input))
        if len(p) > 3:
            grads.append(grads[2] if of_state is of_input else _total(of_state))
        return grads

    def replay(self, p: Params, saved: Steps, x: Tensor) -> tuple[Tensor, Steps]:
        """Return c_t at every real step, with the saved h_{t-1}."""
        return self._codes(p, saved).transpose(0, 1), saved

    def inputs(self, saved: Steps) -> Sequence[Tensor]:
        a = saved.x, later(saved.h)
        return [(t if saved.real is None else t * saved.real).transpose(0, 1) for t in a]

    def columns(self, saved: Steps, r: Tensor) -> tuple[Tensor, Tensor]:
        x, h, real = saved
        a = torch.cat([x, later(h), torch.ones_like(x[..., :1])], 2)
        return (a if real is None else a * real).flatten(0, 1), r.transpose(0, 1).flatten(0, 1)

    def activation(self, p: Params, saved: Steps) -> Activation:
        """Return h as a function of all codes, at those of the saved pass."""
        codes = saved.h if self.mode == "RNN_TANH" else self._codes(p, saved)  # tanh is known from its value
        return ACTIVATIONS[self.mode](codes, saved.h, p[1], saved.real, self.marked)

    def feedback(self, p: Params, saved: Steps, q: Tensor) -> Tensor:
        """Return W q_{t-1} in the codes of every step."""
        back = products.linear(h_of(q, self.marked)[:-1], p[1])
        back = F.pad(self._joined(None, back), (0, 0, 0, 0, 1, 0))
        return (back if saved.real is None else back * saved.real).transpose(0, 1)

    def _codes(self, p: Params, saved: Steps) -> Tensor:
        """Return c_t at every real step, by steps."""
        b, b2 = self._biases(p)
        c = self._joined(products.linear(saved.x, p[0], b), products.linear(later(saved.h), p[1], b2))
        return c if saved.real is None else c * saved.real

    def _biases(self, p: Params) -> Sequence[Tensor]:
        biases = [*p[2:], *([self.module.bias_hh_l0] if self.is_linear else [])]
        return biases or [p[1].new_zeros(len(p[1]))] * 2

    def _of_input(self, v: Tensor) -> Tensor:
        """Return the part of codes, or of gradients at them, to which U belongs."""
        return v[..., : 3 * self.hidden] if self.mode == "GRU" else v

    def _of_state(self, v: Tensor) -> Tensor:
        """Return the part of codes, or of gradients at them, to which W belongs."""
        H = self.hidden
        return torch.cat([v[..., : 2 * H], v[..., 3 * H :]], -1) if self.mode == "GRU" else v

    def _joined(self, of_input: Tensor | None, of_state: Tensor | None) -> Tensor:
        """Return the codes, joined from the parts of U and W; None for zeros."""
        first, *more = (part for part in (of_input, of_state) if part is not None)
        if self.mode != "GRU":
            return first + more[0] if more else first
        H, zero = self.hidden, torch.zeros_like(first)
        x, s = (zero if part is None else part for part in (of_input, of_state))
        return torch.cat([x[..., : 2 * H] + s[..., : 2 * H], x[..., 2 * H :], s[..., 2 * H :]], -1)


class LastOfEach(Map):
    """The map of a `LastReal`."""

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Any]:
        at = self.module.places(x)
        return x.gather(1, at).squeeze(1)[:, :-1], (x.shape, at)

    def vjp(self, p: Params, saved: Any, v: Tensor) -> Tensor:
        shape, at = saved
        return v.new_zeros(shape).scatter(1, at, F.pad(v, (0, 1)).unsqueeze(1))

    def jvp(self, p: Params, saved: Any, u: Tensor) -> Tensor:
        return u.gather(1, saved[1]).squeeze(1)[:, :-1]


class StepwiseLinear(Linear):
    """The map of a `Readout`."""

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Tensor]:
        return products.linear(x.transpose(0, 1), *p).transpose(0, 1).contiguous(), x

    def vjp(self, p: Params, saved: Tensor, v: Tensor) -> Tensor:
        return super().vjp(p, saved, v.transpose(0, 1).contiguous()).transpose(0, 1)

    def jvp(self, p: Params, saved: Tensor, u: Tensor) -> Tensor:
        return super().jvp(p, saved, u.transpose(0, 1)).transpose(0, 1)

    def grads(self, p: Params, saved: Tensor, v: Tensor) -> Params:
        return super().grads(p, saved.transpose(0, 1), v.transpose(0, 1))

    def rows(self, x: Tensor, positions: int | None = None) -> Tensor:
        return super().rows(x.transpose(0, 1) if positions is None else x, positions)

    def columns(self, saved: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        return super().columns(saved, r.transpose(0, 1))


def _total(v: Tensor) -> Tensor:
    """The sum over steps and samples; on a CPU a product is many times faster."""
    return v.sum((0, 1)) if v.is_cuda else torch.mv(v.flatten(0, 1).mT, v.new_ones(v[..., 0].numel())).to(v.dtype)


def _product(v: Tensor, x: Tensor) -> Tensor:
    """Return the sum over steps and samples of v x^T."""
    return products.outer(v.flatten(0, 1), x.flatten(0, 1))
