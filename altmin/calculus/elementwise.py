"""Activations that act on each entry by itself."""

import torch
from torch import Tensor

from altmin.calculus.base import Map, Params, Saved
from altmin.calculus.context import LOCAL, Context


class ReLU(Map):
    """y = max(x, 0). It saves y."""

    selects = True

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        y = x.clamp_min(0)
        return y, y

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return torch.ops.aten.threshold_backward(v, saved, 0)

    jvp = vjp


class Elementwise(Map):
    """Any other activation y_i = f(x_i). The slope comes from forward differentiation with a tangent of ones."""

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        y = self._function(x)
        return y, (x, y)

    def slope(self, x: Tensor, y: Tensor) -> Tensor:
        """Return f'(x), given y = f(x)."""
        return torch.func.jvp(self._function, (x,), (torch.ones_like(x),))[1]

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return self.slope(*saved) * v

    jvp = vjp

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
    """f' = 1 - y^2, by torch's kernel."""

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return torch.ops.aten.tanh_backward(v, saved[1])

    jvp = vjp


class Sigmoid(Elementwise):
    """f' = y (1 - y), by torch's kernel."""

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return torch.ops.aten.sigmoid_backward(v, saved[1])

    jvp = vjp
