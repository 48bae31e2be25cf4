"""The maps of the layers in time.

Sequences are (samples, steps, features) to the outside and lie in memory step by step, as the fused recurrence leaves
them; here they are handled as (steps, samples, features), so that nothing is copied.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from altmin.calculus import products
from altmin.calculus.base import Map, Params, rounded, shifted
from altmin.calculus.context import LOCAL, Context
from altmin.calculus.linear import Linear
from altmin.layers import Recurrences, Recurrent, recurrence


class Steps(NamedTuple):
    """What a recurrent layer saves, all of shape (steps, samples, features): its input, h_1..h_T, and which steps are
    real (None: all)."""

    x: Tensor
    h: Tensor
    real: Tensor | None


class Recurrence(Map):
    """A recurrent layer. Its forward pass is the whole recurrence; its local calculus is that of one step,

        c_t = U x_t + W h_{t-1} + b,

    linear in x_t and in the weights, with every h_{t-1} given: it belongs to the code of its own step.
    """

    affine = True
    is_linear = True

    def __init__(self, module: Recurrent):
        super().__init__(module)
        self.names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0")

    def operands(self, p: Params) -> Params:
        return rounded(p)

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Steps]:
        steps, real = self.module.parts(x)
        steps, real = steps.transpose(0, 1).contiguous(), None if real is None else real.transpose(0, 1)
        weights = *(q.to(x.dtype) for q in p), self.module.bias_hh_l0
        h = (Recurrences.apply if context.traced else recurrence)(steps, *weights)
        h = h if real is None else h * real
        return h.transpose(0, 1), Steps(steps, h, real)

    def vjp(self, p: Params, saved: Steps, v: Tensor) -> Tensor:
        u = products.matmul(v, p[0])
        return F.pad(u, (0, 1)) if self.module.padded else u

    def jvp(self, p: Params, saved: Steps, u: Tensor) -> Tensor:
        return products.linear(u[..., :-1] if self.module.padded else u, p[0])

    def quotient(self, p: Params, saved: Steps, u: Tensor, e: Tensor) -> tuple[Tensor, Steps]:
        steps = (u[..., :-1] if self.module.padded else u).transpose(0, 1)
        return self.jvp(p, saved, u), saved._replace(x=shifted(saved.x, steps, e))

    def grads(self, p: Params, saved: Steps, v: Tensor) -> Params:
        v = v.transpose(0, 1)
        # on a CPU a product is many times faster than a sum
        total = v.sum((0, 1)) if v.is_cuda else (v.flatten(0, 1).mT @ v.new_ones(v[..., 0].numel(), 1)).squeeze(1)
        return _product(v, saved.x, p[0]), _product(v[1:], saved.h[:-1], p[1]), total

    def replay(self, p: Params, saved: Steps, x: Tensor) -> tuple[Tensor, Steps]:
        """c_t at every real step, with the saved h_{t-1}."""
        c = products.linear(saved.x, p[0], p[2])
        c[1:] += products.linear(saved.h[:-1], p[1])
        c = c if saved.real is None else c.mul_(saved.real)
        return c.transpose(0, 1), saved

    def columns(self, saved: Steps, r: Tensor) -> tuple[Tensor, Tensor]:
        x, h, real = saved
        a = torch.cat([x, F.pad(h[:-1], (0, 0, 0, 0, 1, 0)), torch.ones_like(x[..., :1])], 2)
        return (a if real is None else a * real).flatten(0, 1), r.transpose(0, 1).flatten(0, 1)


class StepwiseLinear(Linear):
    """The map of a `Readout`."""

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Tensor]:
        return products.linear(x.transpose(0, 1), *p).transpose(0, 1).contiguous(), x

    def grads(self, p: Params, saved: Tensor, v: Tensor) -> Params:
        return super().grads(p, saved.transpose(0, 1), v.transpose(0, 1))

    def rows(self, x: Tensor, positions: int | None = None) -> Tensor:
        return super().rows(x.transpose(0, 1) if positions is None else x, positions)

    def columns(self, saved: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        return super().columns(saved, r.transpose(0, 1))


def _product(v: Tensor, x: Tensor, W: Tensor) -> Tensor:
    """sum over steps and samples of v x^T."""
    return products.outer(v.flatten(0, 1), x.flatten(0, 1), W)
