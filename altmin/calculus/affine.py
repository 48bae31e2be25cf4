"""Linear layers and convolutions."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from altmin.calculus import products
from altmin.calculus.base import Map, Params, Saved, shifted
from altmin.calculus.numbers import Number
from altmin.common.fusing import fusible


class Affine(Map):
    """What is linear in its input and in its parameters, and remembers that input."""

    affine = True

    def with_bias(self, a: Tensor) -> Tensor:
        """Rows of inputs with a 1 appended for the bias, if there is one."""
        return F.pad(a, (0, 1), value=1.0) if len(self.names) > 1 else a

    def quotient(self, p: Params, saved: Saved, u: Tensor, e: Number) -> tuple[Tensor, Saved]:
        return self.jvp(p, saved, u), shifted(saved, u, e)


class Linear(Affine):
    """y = W x + b."""

    regresses = True

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        return products.linear(x, *p), x

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return products.matmul(v, p[0])

    def jvp(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return products.linear(u, p[0])

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        x, v = (saved, v) if v.ndim == 2 else (saved.flatten(0, -2), v.flatten(0, -2))
        # on a GPU a product with few rows is ten times slower than its transpose
        few = v.is_cuda and v.shape[1] < 32 <= x.shape[1]
        dW = products.matmul(x.mT, v).mT.contiguous() if few else products.matmul(v.mT, x)
        return (dW, _sum_of_rows(v)) if len(p) > 1 else (dW,)

    def columns(self, saved: Saved, r: Tensor) -> tuple[Tensor, Tensor]:
        return self.with_bias(saved.flatten(0, -2)), r.flatten(0, -2)


@fusible
def _sum_of_rows(v: Tensor) -> Tensor:
    return v.sum(0)


class Convolution(Affine):
    """Convolutions of one to three dimensions, transposed ones too."""

    def __init__(self, module: Any):
        super().__init__(module)
        self.dims = len(module.kernel_size)
        padding = [0] * self.dims if module.padding == "valid" else list(module.padding)
        geometry = list(module.stride), padding, list(module.dilation)
        self.geometry = (*geometry, module.transposed, list(module.output_padding), module.groups)
        self.regresses = self.dims < 3 and not module.transposed and module.groups == 1

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        return products.convolution(x, p[0], p[1] if len(p) > 1 else None, self.geometry), x

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return products.convolution_backward(v, saved, p[0], self.geometry, weight=False)

    def jvp(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return products.convolution(u, p[0], None, self.geometry)

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        dW = products.convolution_backward(v, saved, p[0], self.geometry, weight=True)
        return (dW, v.sum([0, *range(2, v.ndim)])) if len(p) > 1 else (dW,)

    def columns(self, saved: Saved, r: Tensor) -> tuple[Tensor, Tensor]:
        """The patches that the kernel sees."""
        stride, padding, dilation = self.geometry[:3]
        kernel = tuple(self.module.kernel_size)
        if self.dims == 1:
            saved, kernel = saved.unsqueeze(2), (1, *kernel)
            stride, padding, dilation = [1, *stride], [0, *padding], [1, *dilation]
        a = F.unfold(saved, kernel, tuple(dilation), tuple(padding), tuple(stride))
        a = a.mT.flatten(0, 1)  # one copy at a time: they are large
        return self.with_bias(a), r.flatten(2).mT.flatten(0, 1)
