"""Products with weights. Within torch.autocast their operands are rounded, as torch rounds them; results have the type
of the operand that is not a weight, so that codes, gradients and sums over samples stay as precise as they were."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

CONVOLUTIONS: Sequence[Any] = (F.conv1d, F.conv2d, F.conv3d)
TRANSPOSED: Sequence[Any] = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
Geometry = Sequence[Any]
"""Stride, padding, dilation, transposed, output padding and groups, as torch.convolution takes them."""


def matmul(a: Tensor, W: Tensor) -> Tensor:
    """Return a W, for a matrix W."""
    return (a @ W).to(a.dtype)


def linear(x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """Return x W^T + b."""
    return F.linear(x, W, b).to(x.dtype)


def outer(v: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of <v, x W^T> with respect to W, v^T x."""
    if v.is_cuda and v.shape[1] < 32 <= x.shape[1]:  # with few rows a product is ten times slower than its transpose
        return (x.mT @ v).mT.contiguous().to(v.dtype)
    return (v.mT @ x).to(v.dtype)


def convolution(x: Tensor, W: Tensor, b: Tensor | None, geometry: Geometry) -> tuple[Tensor, Tensor]:
    """Return x * W + b, and x in the type in which torch has multiplied."""
    stride, padding, dilation, transposed, output_padding, groups = geometry
    if transposed:
        y = TRANSPOSED[x.ndim - 3](x, W, b, stride, padding, output_padding, groups, dilation)
    else:
        y = CONVOLUTIONS[x.ndim - 3](x, W, b, stride, padding, dilation, groups)
    return y.to(x.dtype), x.to(y.dtype)


def convolution_backward(v: Tensor, x: Tensor, W: Tensor, geometry: Geometry, weight: bool) -> Tensor:
    """Return the gradient of <v, x * W> with respect to W if `weight`, else to x. x: as `convolution` returns it."""
    operands = v.to(x.dtype), x, W.to(x.dtype)
    grads = torch.ops.aten.convolution_backward(*operands, None, *geometry, [not weight, weight, False])
    return grads[1 if weight else 0].to(v.dtype)
