"""Linear maps: layers and convolutions, and modules without parameters (reshaping, average pooling, padding, dropout
once its mask is drawn)."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from altmin.calculus import products
from altmin.calculus.base import Map, Params, Saved, Weighted
from altmin.calculus.context import LOCAL, Context

FEWEST_OUTPUTS = 16
"""Number of outputs of each group from which on the weights of a grouped convolution count as matrices."""


class Affine(Weighted):
    """A map that is linear in its input and in its parameters, and saves its input. groups: how many matrices its
    weight is."""

    affine = True
    groups = 1
    matrices: Sequence[int] = (0,)

    def inputs(self, saved: Saved) -> Sequence[Tensor]:
        return (saved,)

    def with_bias(self, a: Tensor) -> Tensor:
        """Return rows of inputs with a 1 appended for the bias, if there is one."""
        return F.pad(a, (0, 1), value=1.0) if len(self.names) > 1 else a


class Linear(Affine):
    """y = W x + b."""

    is_linear = True

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        return F.linear(x, *p).to(x.dtype), x

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return (v @ p[0]).to(v.dtype)

    def jvp(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return F.linear(u, p[0]).to(u.dtype)

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        x, v = (saved, v) if v.ndim == 2 else (saved.flatten(0, -2), v.flatten(0, -2))
        dW = (v.mT @ x).to(v.dtype)
        return (dW, v.sum(0)) if len(p) > 1 else (dW,)

    def rows(self, x: Tensor, positions: int | None = None) -> Tensor:
        if positions is not None and x.ndim > 2:
            x = x.flatten(1, -2)
            x = x[:, :: -(-x.shape[1] // positions)]
        return x.flatten(0, -2)

    def places(self, x: Tensor) -> int:
        return math.prod(x.shape[1:-1])

    def columns(self, saved: Saved, r: Tensor) -> tuple[Tensor, Tensor]:
        return self.with_bias(self.rows(saved)), r.flatten(0, -2)


class Convolution(Affine):
    """Convolutions of one to three dimensions, transposed ones too."""

    def __init__(self, module: Any):
        super().__init__(module)
        self.dims = len(module.kernel_size)
        padding = [0] * self.dims if module.padding == "valid" else list(module.padding)
        geometry = list(module.stride), padding, list(module.dilation)
        self.geometry = (*geometry, module.transposed, list(module.output_padding), module.groups)
        self.groups = module.groups
        self.is_linear = self.groups == 1 and not module.transposed
        if module.transposed or module.out_channels < FEWEST_OUTPUTS * self.groups > FEWEST_OUTPUTS:
            self.matrices = ()

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        return products.convolution(x, p[0], p[1] if len(p) > 1 else None, self.geometry)

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return products.convolution_backward(v, saved, p[0], self.geometry, weight=False)

    def jvp(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return products.convolution(u, p[0], None, self.geometry)[0]

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        dW = products.convolution_backward(v, saved, p[0], self.geometry, weight=True)
        return (dW, v.sum([0, *range(2, v.ndim)])) if len(p) > 1 else (dW,)

    def rows(self, x: Tensor, positions: int | None = None) -> Tensor:
        """Return the patches that the kernel sees."""
        stride, padding, dilation = self.geometry[:3]
        kernel = tuple(self.module.kernel_size)
        if positions is not None:
            places = math.prod(_sizes(x, kernel, stride, padding, dilation))
            factor = max(1, round((places / positions) ** (1 / self.dims)))
            stride = [s * factor for s in stride]
        patches = F.unfold if self.dims == 2 else _patches
        a = patches(x, kernel, tuple(dilation), tuple(padding), tuple(stride))
        if self.groups > 1:
            return a.unflatten(1, (self.groups, -1)).permute(1, 0, 3, 2).flatten(1, 2)
        return a.mT.flatten(0, 1)

    def places(self, x: Tensor) -> int:
        return math.prod(_sizes(x, self.module.kernel_size, *self.geometry[:3]))

    def columns(self, saved: Saved, r: Tensor) -> tuple[Tensor, Tensor]:
        return self.with_bias(self.rows(saved)), r.flatten(2).mT.flatten(0, 1)


def _sizes(x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any) -> list[int]:
    """Return the sizes of a convolution's output."""
    shape = zip(x.shape[2:], kernel, stride, padding, dilation, strict=True)
    return [(n + 2 * q - d * (k - 1) - 1) // s + 1 for n, k, s, q, d in shape]


def _patches(x: Tensor, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    """Return `F.unfold` for any number of dimensions."""
    sizes = _sizes(x, kernel, stride, padding, dilation)
    x = F.pad(x, [q for size in reversed(padding) for q in (size, size)])
    patches = []
    for offset in itertools.product(*map(range, kernel)):
        along = zip(offset, dilation, stride, sizes, strict=True)
        part = x
        for dim, (i, d, s, n) in enumerate(along, 2):
            part = part[(slice(None),) * dim + (slice(i * d, i * d + s * (n - 1) + 1, s),)]
        patches.append(part)
    return torch.stack(patches, 2).flatten(1, 2).flatten(2)


class LinearModule(Map):
    """A linear module without parameters (average pooling, flattening, padding): its jvp is itself."""

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        return self.module(x), x.shape

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return torch.func.vjp(self.module, v.new_zeros(1).expand(saved))[1](v)[0]

    def jvp(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return self.module(u)


class Reshape(LinearModule):
    """Flatten and Unflatten."""

    selects = True

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
            if v.shape[-2:] == (1, 1):
                return v.expand(saved) / (saved[-2] * saved[-1])
            return torch.ops.aten._adaptive_avg_pool2d_backward(v, x)
        pair = [[n, n] if isinstance(n, int) else list(n) for n in (m.kernel_size, m.stride, m.padding)]
        return torch.ops.aten.avg_pool2d_backward(v, x, *pair, m.ceil_mode, m.count_include_pad, m.divisor_override)


class Dropout(Map):
    """One mask per step: forward, vjp and jvp all use the same units."""

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        m = self.module
        if not m.training or m.p == 0:
            return x, None
        whole_channels = 0 if type(m) is nn.Dropout else x.ndim - 2
        shape = x.shape[: x.ndim - whole_channels] + (1,) * whole_channels
        mask = context.draw(shape, lambda shape: x.new_empty(shape).bernoulli_(1 - m.p)).div_(max(1 - m.p, 1e-30))
        return x * mask, mask

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return v if saved is None else v * saved

    jvp = vjp

    def replay(self, p: Params, saved: Saved, x: Tensor) -> tuple[Tensor, Saved]:
        return self.vjp(p, saved, x), saved
