"""Activations without derivatives: values and exact quotients, no vjp and no jvp."""

import torch
from torch import Tensor

from altmin.calculus.base import Map, Params, Saved, divisor, shifted
from altmin.calculus.context import LOCAL, Context
from altmin.layers import no_derivative


class Discrete(Map):
    """`Sign` and `Staircase`. Asking for J is a TypeError."""

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        y = self.module.values(x)
        return y, (x, y)

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        raise no_derivative(self.module)

    jvp = vjp

    def quotient(self, p: Params, saved: Saved, u: Tensor, e: Tensor) -> tuple[Tensor, Saved]:
        y, moved = self.forward(p, shifted(saved[0], u, e))
        return (saved[1] - y) / divisor(e), moved

    def estimate(self, saved: Saved, v: Tensor) -> Tensor:
        """What straight-through estimation takes for J v, and for J^T v: v where |x| <= 1, else 0."""
        return v * (saved[0].abs() <= 1)


class Estimated(Discrete):
    """`StraightThrough`: an estimate in place of J.

    Where a step goes, the values stay as they are, as if it crossed no threshold: the quotient is 0. The few units that
    a small step carries across would change by a whole level each, much more than all that the step was meant to do.
    """

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return self.estimate(saved, v)

    jvp = vjp

    def quotient(self, p: Params, saved: Saved, u: Tensor, e: Tensor) -> tuple[Tensor, Saved]:
        return torch.zeros_like(u), saved


class StandIn(Estimated):
    """For one step, what `Estimated` would be, of a map that is not."""

    def __init__(self, of: Discrete):
        super().__init__(of.module)
        self.forward, self.estimate = of.forward, of.estimate  # type: ignore[method-assign]  # the audit watches `of`
