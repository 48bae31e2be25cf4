"""Activations without derivatives: values and exact quotients, no vjp and no jvp."""

import torch
from torch import Tensor

from altmin.calculus.base import Map, Params, Saved, divisor, shifted
from altmin.calculus.context import LOCAL, Context
from altmin.layers import no_derivative


class Discrete(Map):
    """`Sign` and `Staircase`. vjp and jvp raise TypeError."""

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
        """The straight-through estimate of J v and of J^T v: v where |x| <= 1, else 0."""
        return v * (saved[0].abs() <= 1)


class Estimated(Discrete):
    """`StraightThrough`: an estimate in place of J.

    The values do not change along a step, as if it crossed no threshold: the quotient is 0. The few units that a small
    step moves across a threshold would change by a whole level each, much more than the intended step.
    """

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return self.estimate(saved, v)

    jvp = vjp

    def quotient(self, p: Params, saved: Saved, u: Tensor, e: Tensor) -> tuple[Tensor, Saved]:
        return torch.zeros_like(u), saved


class StandIn(Estimated):
    """For one step, the `Estimated` version of a map that is not one."""

    def __init__(self, of: Discrete):
        super().__init__(of.module)
        self.forward, self.estimate = of.forward, of.estimate  # type: ignore[method-assign]  # the audit watches `of`
