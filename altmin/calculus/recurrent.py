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
from altmin.calculus.across_time import Activation, BothActivations, GRUOfCodes, LSTMOfCodes, Order, TanhOfCodes, later
from altmin.calculus.base import Map, Params, rounded, shifted
from altmin.calculus.context import LOCAL, Context
from altmin.calculus.linear import Linear
from altmin.layers import BothDirections, Recurrent, opaque_recurrence, recurrence


class Steps(NamedTuple):
    """What a recurrent layer saves, all of shape (steps, samples, features): its input, h_1..h_T, and which steps are
    real (None: all)."""

    x: Tensor
    h: Tensor
    real: Tensor | None


ACTIVATIONS = {"RNN_TANH": TanhOfCodes, "GRU": GRUOfCodes, "LSTM": LSTMOfCodes}


class Recurrence(Map):
    """A recurrent layer. Its forward pass is the whole recurrence; its local calculus is that of the map to the codes,
    with every h_{t-1} given: it belongs to the code of its own step. `activation` and `feedback` are what else moving
    the codes takes."""

    affine = True

    def __init__(self, module: Any):
        super().__init__(module)
        if isinstance(module, Recurrent):
            self.names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0")
        self.is_linear = isinstance(module, Recurrent)
        self.mode: str = module.mode
        self.padded: bool = module.padded
        self.order = Order(getattr(module, "reverse", False), self.padded and not self.is_linear)
        self.hidden: int = module.hidden_size
        self.features = self.hidden + self.order.marked

    def operands(self, p: Params) -> Params:
        return rounded(p)

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Steps]:
        steps, real = self.module.parts(x)
        steps, real = self.order.by_step(steps).contiguous(), None if real is None else real.transpose(0, 1)
        weights = [q.to(x.dtype) for q in (*p[:2], *self._biases(p))]
        h = (opaque_recurrence if context.traced else recurrence)(self.mode, steps, *weights)
        h = h if real is None else h * real
        output = torch.cat([h, real], -1) if self.order.marked and real is not None else h
        return self.order.by_sample(output), Steps(steps, h, real)

    def vjp(self, p: Params, saved: Steps, v: Tensor) -> Tensor:
        u = products.matmul(self._of_input(v), p[0])
        return F.pad(u, (0, 1)) if self.padded else u

    def jvp(self, p: Params, saved: Steps, u: Tensor) -> Tensor:
        return self._joined(products.linear(u[..., :-1] if self.padded else u, p[0]), None)

    def quotient(self, p: Params, saved: Steps, u: Tensor, e: Tensor) -> tuple[Tensor, Steps]:
        steps = self.order.by_step(u[..., :-1] if self.padded else u)
        return self.jvp(p, saved, u), saved._replace(x=shifted(saved.x, steps, e))

    def grads(self, p: Params, saved: Steps, v: Tensor) -> Params:
        v = self.order.by_step(v)
        of_input, of_state = self._of_input(v), self._of_state(v)
        found = [_product(of_input, saved.x, p[0]), _product(of_state[1:], saved.h[:-1], p[1])]
        if len(p) > 2:
            found.append(_total(of_input))
        if len(p) > 3:
            found.append(found[2] if of_state is of_input else _total(of_state))
        return found

    def replay(self, p: Params, saved: Steps, x: Tensor) -> tuple[Tensor, Steps]:
        """c_t at every real step, with the saved h_{t-1}."""
        return self.order.by_sample(self._codes(p, saved)), saved

    def columns(self, saved: Steps, r: Tensor) -> tuple[Tensor, Tensor]:
        x, h, real = saved
        a = torch.cat([x, later(h), torch.ones_like(x[..., :1])], 2)
        return (a if real is None else a * real).flatten(0, 1), r.transpose(0, 1).flatten(0, 1)

    def activation(self, p: Params, saved: Steps) -> Activation:
        """h as a function of all codes, at those of the saved pass."""
        codes = saved.h if self.mode == "RNN_TANH" else self._codes(p, saved)  # tanh is known from its value
        return ACTIVATIONS[self.mode](codes, saved.h, p[1], saved.real, self.order)

    def feedback(self, p: Params, saved: Steps, q: Tensor) -> Tensor:
        """W q_{t-1} in the codes of every step."""
        back = products.linear(self.order.h_of(q)[:-1], p[1])
        back = F.pad(self._joined(None, back), (0, 0, 0, 0, 1, 0))
        return self.order.by_sample(back if saved.real is None else back * saved.real)

    def moved(self, saved: Steps, q: Tensor, e: Tensor) -> Steps:
        """`saved` once the codes have moved the output by -e q."""
        return saved._replace(h=shifted(saved.h, self.order.h_of(q), e))

    def _codes(self, p: Params, saved: Steps) -> Tensor:
        """c_t at every real step, by steps."""
        b, b2 = self._biases(p)
        c = self._joined(products.linear(saved.x, p[0], b), products.linear(later(saved.h), p[1], b2))
        return c if saved.real is None else c * saved.real

    def _biases(self, p: Params) -> Sequence[Tensor]:
        given = [*p[2:], *([self.module.bias_hh_l0] if self.is_linear else [])]
        return given or [p[1].new_zeros(len(p[1]))] * 2

    def _of_input(self, v: Tensor) -> Tensor:
        """Of codes, or of gradients at them, the part to which U belongs."""
        return v[..., : 3 * self.hidden] if self.mode == "GRU" else v

    def _of_state(self, v: Tensor) -> Tensor:
        """Of codes, or of gradients at them, the part to which W belongs."""
        H = self.hidden
        return torch.cat([v[..., : 2 * H], v[..., 3 * H :]], -1) if self.mode == "GRU" else v

    def _joined(self, of_input: Tensor | None, of_state: Tensor | None) -> Tensor:
        """The codes, from what U and W give; None for zeros."""
        first, *more = (each for each in (of_input, of_state) if each is not None)
        if self.mode != "GRU":
            return first + more[0] if more else first
        H, zero = self.hidden, torch.zeros_like(first)
        x, s = (zero if each is None else each for each in (of_input, of_state))
        return torch.cat([x[..., : 2 * H] + s[..., : 2 * H], x[..., 2 * H :], s[..., 2 * H :]], -1)


class BidirectionalRecurrence(Map):
    """Two recurrent layers on the same sequences, their codes and their h side by side."""

    affine = True

    def __init__(self, module: BothDirections):
        super().__init__(module)
        self.layers = Recurrence(module.first), Recurrence(module.second)
        count = len(self.layers[0].names)
        self.slices = slice(0, count), slice(count, None)
        self.features = 2 * self.layers[0].hidden

    def operands(self, p: Params) -> Params:
        return rounded(p)

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, tuple[Steps, ...]]:
        found = [layer.forward(p[of], x, context) for layer, of in self._each()]
        return torch.cat([h for h, _ in found], -1), tuple(saved for _, saved in found)

    def vjp(self, p: Params, saved: Sequence[Steps], v: Tensor) -> Tensor:
        first, second = (
            layer.vjp(p[of], s, part) for (layer, of), s, part in zip(self._each(), saved, v.chunk(2, -1), strict=True)
        )
        return first + second

    def jvp(self, p: Params, saved: Sequence[Steps], u: Tensor) -> Tensor:
        return torch.cat([layer.jvp(p[of], s, u) for (layer, of), s in zip(self._each(), saved, strict=True)], -1)

    def quotient(self, p: Params, saved: Sequence[Steps], u: Tensor, e: Tensor) -> tuple[Tensor, tuple[Steps, ...]]:
        found = [layer.quotient(p[of], s, u, e) for (layer, of), s in zip(self._each(), saved, strict=True)]
        return torch.cat([change for change, _ in found], -1), tuple(moved for _, moved in found)

    def grads(self, p: Params, saved: Sequence[Steps], v: Tensor) -> Params:
        parts = zip(self._each(), saved, v.chunk(2, -1), strict=True)
        return [g for (layer, of), s, part in parts for g in layer.grads(p[of], s, part)]

    def replay(self, p: Params, saved: Sequence[Steps], x: Tensor) -> tuple[Tensor, Sequence[Steps]]:
        parts = zip(self._each(), saved, strict=True)
        return torch.cat([layer.replay(p[of], s, x)[0] for (layer, of), s in parts], -1), saved

    def activation(self, p: Params, saved: Sequence[Steps]) -> BothActivations:
        parts = zip(self._each(), saved, strict=True)
        return BothActivations([layer.activation(p[of], s) for (layer, of), s in parts])

    def feedback(self, p: Params, saved: Sequence[Steps], q: Tensor) -> Tensor:
        parts = zip(self._each(), saved, q.chunk(2, -1), strict=True)
        return torch.cat([layer.feedback(p[of], s, part) for (layer, of), s, part in parts], -1)

    def moved(self, saved: Sequence[Steps], q: Tensor, e: Tensor) -> tuple[Steps, ...]:
        parts = zip(self.layers, saved, q.chunk(2, -1), strict=True)
        return tuple(layer.moved(s, part, e) for layer, s, part in parts)

    def _each(self) -> Sequence[tuple[Recurrence, slice]]:
        return list(zip(self.layers, self.slices, strict=True))


InTime = Recurrence | BidirectionalRecurrence
"""The maps whose codes depend on their own values at earlier steps."""


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

    def quotient(self, p: Params, saved: Tensor, u: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        return self.jvp(p, saved, u), shifted(saved, u, e)

    def grads(self, p: Params, saved: Tensor, v: Tensor) -> Params:
        return super().grads(p, saved.transpose(0, 1), v.transpose(0, 1))

    def rows(self, x: Tensor, positions: int | None = None) -> Tensor:
        return super().rows(x.transpose(0, 1) if positions is None else x, positions)

    def columns(self, saved: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        return super().columns(saved, r.transpose(0, 1))


def _total(v: Tensor) -> Tensor:
    """The sum over steps and samples; on a CPU a product is many times faster."""
    return v.sum((0, 1)) if v.is_cuda else (v.flatten(0, 1).mT @ v.new_ones(v[..., 0].numel(), 1)).squeeze(1)


def _product(v: Tensor, x: Tensor, W: Tensor) -> Tensor:
    """sum over steps and samples of v x^T."""
    return products.outer(v.flatten(0, 1), x.flatten(0, 1), W)
