"""Activations that act on each entry by itself."""

import torch
from torch import Tensor

from altmin.calculus.base import SMALLEST, Map, Params, Saved, divisor, shifted
from altmin.calculus.context import LOCAL, Context


class ReLU(Map):
    """y = max(x, 0)."""

    selects = True

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        y = x.clamp_min(0)
        return y, (x, y)

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return torch.ops.aten.threshold_backward(v, saved[1], 0)

    jvp = vjp

    def quotient(self, p: Params, saved: Saved, u: Tensor, e: Tensor) -> tuple[Tensor, Saved]:
        x, y = saved
        moved = shifted(x, u, e)
        y_moved, e = moved.clamp_min(0), e.clamp_min(SMALLEST)
        return torch.where(y > 0, u.minimum(y / e), y_moved / -e), (moved, y_moved)

    def without_quotient(self, saved: Saved) -> Saved:
        return None, saved[1]

    def kink_distance(self, saved: Saved, below: Tensor | None) -> Tensor | None:
        return saved[1] if below is None else below.minimum(saved[1])

    def spread(self, saved: Saved, u: Tensor) -> Tensor:
        return u


class Elementwise(Map):
    """Any other y_i = f(x_i). The slope comes from forward differentiation with a tangent of ones."""

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        y = self._function(x)
        return y, (x, y)

    def slope(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.func.jvp(self._function, (x,), (torch.ones_like(x),))[1]

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return self.slope(*saved) * v

    jvp = vjp

    def quotient(self, p: Params, saved: Saved, u: Tensor, e: Tensor) -> tuple[Tensor, Saved]:
        x, y = saved
        moved = shifted(x, u, e)
        y_moved = self._function(moved)
        e = divisor(e)
        return self.difference(x, y, u * -e, y_moved) / -e, (moved, y_moved)

    def difference(self, x: Tensor, y: Tensor, u: Tensor, y_moved: Tensor) -> Tensor:
        """f(x + u) - f(x), given y = f(x) and y_moved = f(x + u): below the square root of the rounding error the
        tangent is the more exact of the two."""
        small = u.abs() < torch.finfo(x.dtype).eps ** 0.5 * (1 + x.abs())
        return torch.where(small, self.vjp((), (x, y), u), y_moved - y)

    def _function(self, x: Tensor) -> Tensor:
        # An in-place activation would overwrite the point at which it is differentiated.
        return self.module(x.clone() if getattr(self.module, "inplace", False) else x)


class Gelu(Elementwise):
    """torch's kernel has its vjp, which is its jvp."""

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return torch.ops.aten.gelu_backward(v, saved[0], approximate=self.module.approximate)

    jvp = vjp


class Silu(Elementwise):
    """torch's kernel has its vjp, which is its jvp."""

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return torch.ops.aten.silu_backward(v, saved[0])

    jvp = vjp


class Tanh(Elementwise):
    """tanh(x + u) - tanh(x) = tanh(u) (1 - tanh(x) tanh(x + u))."""

    def slope(self, x: Tensor, y: Tensor) -> Tensor:
        return 1 - y * y

    def difference(self, x: Tensor, y: Tensor, u: Tensor, y_moved: Tensor) -> Tensor:
        return torch.tanh(u) * (1 - y * y_moved)


class Sigmoid(Elementwise):
    """sigmoid(x) = (1 + tanh(x/2)) / 2, so its differences are those of tanh."""

    def slope(self, x: Tensor, y: Tensor) -> Tensor:
        return y * (1 - y)

    def difference(self, x: Tensor, y: Tensor, u: Tensor, y_moved: Tensor) -> Tensor:
        return torch.tanh(u / 2) * (1 - (2 * y - 1) * (2 * y_moved - 1)) / 2
