"""Activations without derivatives, which have values, no vjp and no jvp. Activations that become discrete entry by
entry, and layers with weights of few bits."""

from typing import Any

import torch
from torch import Tensor, nn

from altmin.calculus.base import Map, Params, Saved, Weighted
from altmin.calculus.context import LOCAL, Context
from altmin.calculus.elementwise import Elementwise, Tanh
from altmin.calculus.linear import Affine, Convolution, Linear
from altmin.layers import no_derivative


class Discrete(Map):
    """`Sign` and `Staircase`. vjp and jvp raise TypeError."""

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        y = self.module.values(x)
        return y, (x, y)

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        raise no_derivative(self.module)

    jvp = vjp

    def estimate(self, saved: Saved, v: Tensor) -> Tensor:
        """Return the straight-through estimate of J v and of J^T v: v where |x| <= 1, else 0."""
        return v * (saved[0].abs() <= 1)


class Estimated(Discrete):
    """`StraightThrough`: an estimate in place of J, by which codes move; values do not change along a step."""

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return self.estimate(saved, v)

    jvp = vjp


class StandIn(Estimated):
    """The `Estimated` version, for one step, of a map that is not one."""

    def __init__(self, of: Discrete):
        super().__init__(of.module)
        self.forward, self.estimate = of.forward, of.estimate  # type: ignore[method-assign]  # the audit watches `of`


class PartlyDiscrete(Map):
    """`Committed`: which entries are discrete is drawn in the forward pass and kept for the step. J is 0 for those."""

    def __init__(self, module: nn.Module):
        super().__init__(module)
        self.smooth = (Tanh if type(self.module.smooth) is nn.Tanh else Elementwise)(self.module.smooth)

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        if self.module.training:
            mask = context.draw(x.shape, lambda shape: torch.rand(shape, dtype=x.dtype, device=x.device))
            mask = mask < self.module.share
        else:
            mask = torch.ones_like(x, dtype=torch.bool)
        return self._at(mask, x)

    def replay(self, p: Params, saved: Saved, x: Tensor) -> tuple[Tensor, Saved]:
        return self._at(saved[0], x)

    def _at(self, mask: Tensor, x: Tensor) -> tuple[Tensor, Saved]:
        y, saved = self.smooth.forward((), x)
        s = self.module.discrete.values(x)
        return torch.where(mask, s, y), (mask, saved)

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return torch.where(saved[0], 0, self.smooth.vjp((), saved[1], v))

    jvp = vjp


class Quantised(Weighted):
    """`QuantisedLinear` and `QuantisedConv2d`: a linear map with the rounded weights. `grads` gives the parameter w the
    gradient of the weights that are used, which is an estimate."""

    def __init__(self, module: Any):
        super().__init__(module)
        self.of: Affine = (Linear if isinstance(module, nn.Linear) else Convolution)(module)

    def used(self, p: Params) -> Params:
        """Return the parameters with rounded weights."""
        return (self.module.values(p[0]), *p[1:])

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        return self.of.forward(self.used(p), x, context)

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return self.of.vjp(self.used(p), saved, v)

    def jvp(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return self.of.jvp(self.used(p), saved, u)

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        return self.of.grads(p, saved, v)
