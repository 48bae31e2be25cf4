"""Activations without derivatives: values and exact differences, no pull and no push."""

from torch import Tensor

from altmin.calculus.base import Map, Params, Saved
from altmin.layers import no_derivative


class Discrete(Map):
    """`Sign` and `Staircase`. A solver that can do without J moves them by `move`; asking for J is an error."""

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        y = self.module.values(x)
        return y, (x, y)

    def pull(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        raise no_derivative(self.module)

    push = pull

    def move(self, p: Params, saved: Saved, u: Tensor) -> tuple[Tensor, Saved]:
        y, moved = self.forward(p, saved[0] + u)
        return y - saved[1], moved

    def estimate(self, saved: Saved, v: Tensor) -> Tensor:
        """What straight-through estimation takes for J v, and for J^T v: v where |x| <= 1, else 0."""
        return v * (saved[0].abs() <= 1)


class Estimated(Discrete):
    """`StraightThrough`: the estimate in place of J."""

    def pull(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return self.estimate(saved, v)

    push = pull


class StandIn(Estimated):
    """For one step, what `Estimated` would be, of a map that is not."""

    def __init__(self, of: Discrete):
        super().__init__(of.module)
        self.forward, self.estimate = of.forward, of.estimate  # type: ignore[method-assign]  # the audit watches `of`
