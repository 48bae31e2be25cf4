"""Linear modules without parameters: reshaping, average pooling, padding, and dropout once its mask is drawn."""

import torch
from torch import Tensor, nn

from altmin.calculus.base import Map, Params, Saved
from altmin.calculus.ranks import drawn


class LinearModule(Map):
    """A linear module without parameters (average pooling, flattening, padding): its jvp is itself."""

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        return self.module(x), x.shape

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return torch.func.vjp(self.module, v.new_zeros(1).expand(saved))[1](v)[0]

    def jvp(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return self.module(u)


class Reshape(LinearModule):
    """Flatten and Unflatten."""

    selects = True

    def room(self, saved: Saved, below: Tensor | None) -> Tensor | None:
        return None if below is None else self.module(below)

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return v.reshape(saved)


class Scaling(LinearModule):
    """A multiple of the input."""

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return self.module(v)


class AveragePool2d(LinearModule):
    """Average pooling in two dimensions, with PyTorch's own kernel for its vjp."""

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        m, x = self.module, v.new_empty(1).expand(saved)
        if isinstance(m, nn.AdaptiveAvgPool2d):
            return torch.ops.aten._adaptive_avg_pool2d_backward(v, x)
        pair = [[n, n] if isinstance(n, int) else list(n) for n in (m.kernel_size, m.stride, m.padding)]
        return torch.ops.aten.avg_pool2d_backward(v, x, *pair, m.ceil_mode, m.count_include_pad, m.divisor_override)


class Dropout(Map):
    """One mask a step: forward, vjp and jvp all see the same units."""

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        m = self.module
        if not m.training or m.p == 0:
            return x, None
        whole_channels = 0 if type(m) is nn.Dropout else x.ndim - 2
        shape = x.shape[: x.ndim - whole_channels] + (1,) * whole_channels
        mask = drawn(shape, lambda shape: x.new_empty(shape).bernoulli_(1 - m.p)).div_(max(1 - m.p, 1e-30))
        return x * mask, mask

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return v if saved is None else v * saved

    jvp = vjp

    def replay(self, p: Params, saved: Saved, x: Tensor) -> tuple[Tensor, Saved]:
        return self.vjp(p, saved, x), saved
