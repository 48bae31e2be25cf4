"""Layers in time: the recurrent layer, the map that reads it out at every step, and what each does to a small change.

Sequences are (samples, steps, features) to the outside and lie in memory step by step, as the fused recurrence leaves
them; here they are handled as (steps, samples, features), so that nothing is copied.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from altmin.calculus import products
from altmin.calculus.affine import Linear
from altmin.calculus.base import Map, Params, vectorised
from altmin.calculus.recurrences import fused, together


class Recurrent(nn.RNN):
    """h_t = tanh(U x_t + W h_{t-1} + b), h_0 = 0: sequences (samples, steps, inputs) to (samples, steps, hidden).

    An `nn.RNN` with one bias: the second, which would only double the first, stays zero. The first starts there, so
    that h is at first an odd function of the input and what reads it out has both signs. padded: the last feature of
    the input says which steps are real; from a sequence's first 0 on all is padding, and h is 0 there.

    >>> Recurrent(2, 3)(torch.zeros(4, 5, 2)).shape
    torch.Size([4, 5, 3])
    """

    def __init__(self, inputs: int, hidden: int, padded: bool = False):
        super().__init__(inputs, hidden, batch_first=True)
        self.padded = padded
        with torch.no_grad():
            self.get_parameter("bias_ih_l0").zero_()
            self.get_parameter("bias_hh_l0").zero_().requires_grad_(False)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """The input proper, and a 1 for every real step (samples, steps, 1), None without padding."""
        features = self.input_size + self.padded
        if x.ndim != 3 or x.shape[-1] != features:
            marked = f" and 1 that marks the real steps, {features} in all" if self.padded else ""
            raise ValueError(
                f"Recurrent reads sequences (samples, steps, features) with {self.input_size} features{marked}; "
                f"given shape {tuple(x.shape)}"
            )
        return (x[..., :-1], x[..., -1:].cumprod(1)) if self.padded else (x, None)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        steps, real = self.parts(x)
        if vectorised():
            weights = [getattr(self, name) for name in self._all_weights[0]]
            h = together(steps.transpose(0, 1), *weights).transpose(0, 1)
        else:
            h = super().forward(steps)[0]
        return h if real is None else h * real


class Readout(nn.Linear):
    """z_t = V h_t at every step: `nn.Linear` for sequences that lie in memory step by step, which are not copied; z,
    of few features, is, and lies sample by sample."""

    def forward(self, h: Tensor) -> Tensor:
        return F.linear(h.transpose(0, 1), self.weight, self.bias).transpose(0, 1).contiguous()


class Steps(NamedTuple):
    """What a recurrent layer remembers, all (steps, samples, features): its input, h_1..h_T, and which steps are real
    (None: all)."""

    x: Tensor
    h: Tensor
    real: Tensor | None


class Recurrence(Map):
    """A recurrent layer. Its forward pass is the whole recurrence; its local calculus is that of one step,

        c_t = U x_t + W h_{t-1} + b,

    linear in x_t and in the weights, with every h_{t-1} given: it belongs to the code of its own step.
    """

    affine = True
    regresses = True

    def __init__(self, module: Recurrent):
        super().__init__(module)
        self.names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0")

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Steps]:
        steps, real = self.module.parts(x)
        steps, real = steps.transpose(0, 1).contiguous(), None if real is None else real.transpose(0, 1)
        weights = *p, self.module.bias_hh_l0
        h = together(steps, *weights) if vectorised() else fused(steps, *weights)
        h = h if real is None else h * real
        return h.transpose(0, 1), Steps(steps, h, real)

    def pull(self, p: Params, saved: Steps, v: Tensor) -> Tensor:
        u = products.matmul(v, p[0])
        return F.pad(u, (0, 1)) if self.module.padded else u

    def push(self, p: Params, saved: Steps, u: Tensor) -> Tensor:
        return products.linear(u[..., :-1] if self.module.padded else u, p[0])

    def move(self, p: Params, saved: Steps, u: Tensor) -> tuple[Tensor, Steps]:
        change = (u[..., :-1] if self.module.padded else u).transpose(0, 1)
        return self.push(p, saved, u), saved._replace(x=saved.x + change)

    def grads(self, p: Params, saved: Steps, v: Tensor) -> Params:
        v = v.transpose(0, 1)
        # on a CPU a product is many times faster than a sum
        total = v.sum((0, 1)) if v.is_cuda else (v.flatten(0, 1).mT @ v.new_ones(v[..., 0].numel(), 1)).squeeze(1)
        return _product(v, saved.x), _product(v[1:], saved.h[:-1]), total

    def replay(self, p: Params, saved: Steps, x: Tensor) -> tuple[Tensor, Steps]:
        """c_t at every real step, h_{t-1} being what is remembered."""
        c = products.linear(saved.x, p[0], p[2])
        c[1:] += products.linear(saved.h[:-1], p[1])
        c = c if saved.real is None else c.mul_(saved.real)
        return c.transpose(0, 1), saved

    def columns(self, saved: Steps, r: Tensor) -> tuple[Tensor, Tensor]:
        x, h, real = saved
        a = torch.cat([x, F.pad(h[:-1], (0, 0, 0, 0, 1, 0)), torch.ones_like(x[..., :1])], 2)
        return (a if real is None else a * real).flatten(0, 1), r.transpose(0, 1).flatten(0, 1)


class Stepwise(Linear):
    """The map of a `Readout`."""

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Tensor]:
        return products.linear(x.transpose(0, 1), *p).transpose(0, 1).contiguous(), x

    def grads(self, p: Params, saved: Tensor, v: Tensor) -> Params:
        return super().grads(p, saved.transpose(0, 1), v.transpose(0, 1))

    def columns(self, saved: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        return super().columns(saved.transpose(0, 1), r.transpose(0, 1))


def _product(v: Tensor, x: Tensor) -> Tensor:
    """sum over steps and samples of v x^T."""
    return products.matmul(v.flatten(0, 1).mT, x.flatten(0, 1))
