"""Products with weights, in the precision of the weights that they are given.

If a runner passes weights rounded to bfloat16 (`Map.operands`), the other operand of each product is rounded too,
which a matrix unit multiplies several times as fast, and the sums that it forms in float32 are returned in the type of
that operand:

    matmul(a, W) = round(a) round(W),        linear(x, W, b) = round(x) round(W)^T + b.

Only products are rounded. Biases, codes, residuals, sums over samples, the weights themselves and the state of
optimizers are not, nor are modules without a closed form, which compute a small move as a difference of two outputs.
Otherwise a function here is the operation of torch that it is named after.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

SUMS_COME_OUT = hasattr(torch.ops.aten.mm, "dtype")
"""Whether torch can return the float32 sums of a bfloat16 product as they are: on CUDA, since 2.8."""

Geometry = Sequence[Any]
"""Stride, padding, dilation, transposed, output padding and groups, as torch.convolution takes them."""


def operand(W: Tensor, bf16: bool) -> Tensor:
    """W as a factor of products that are rounded if `bf16`."""
    return W.bfloat16() if bf16 else W


def autocast(x: Tensor, bf16: bool) -> AbstractContextManager[Any]:
    """For a forward pass and its loss by autograd: torch's own rounding, if products are rounded."""
    return torch.autocast(x.device.type, torch.bfloat16) if bf16 else nullcontext()


def matmul(a: Tensor, W: Tensor) -> Tensor:
    """a W, for a matrix W.

    >>> matmul(torch.tensor([[1.001]]), torch.tensor([[3.0]], dtype=torch.bfloat16))
    tensor([[3.]])
    """
    if a.dtype == W.dtype:
        return a @ W
    if SUMS_COME_OUT and a.is_cuda and _plain(a) and _plain(W):
        sums = torch.mm(a.reshape(-1, a.shape[-1]).to(W.dtype), W, out_dtype=torch.float32)
        return sums.view(*a.shape[:-1], W.shape[-1]).to(a.dtype)
    return (a.to(W.dtype) @ W).to(a.dtype)


def linear(x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """x W^T + b."""
    if x.dtype == W.dtype:
        return F.linear(x, W, b)
    y = matmul(x, W.mT)
    return y if b is None else y + b


def outer(v: Tensor, x: Tensor, W: Tensor) -> Tensor:
    """The gradient of <v, x W^T> with respect to W: v^T x, rounded as W is, in the type of v."""
    # on a GPU a product with few rows is ten times slower than its transpose
    few = v.is_cuda and v.shape[1] < 32 <= x.shape[1]
    a, b = (v, x) if v.dtype == W.dtype else (v.to(W.dtype), x.to(W.dtype))
    return ((b.mT @ a).mT.contiguous() if few else a.mT @ b).to(v.dtype)


def convolution(x: Tensor, W: Tensor, b: Tensor | None, geometry: Geometry) -> Tensor:
    """x * W + b."""
    if x.dtype == W.dtype:
        return torch.convolution(x, W, b, *geometry)
    y = torch.convolution(x.to(W.dtype), W, None, *geometry).to(x.dtype)
    return y if b is None else y + b.view(-1, *[1] * (x.ndim - 2))


def convolution_backward(v: Tensor, x: Tensor, W: Tensor, geometry: Geometry, weight: bool) -> Tensor:
    """The gradient of <v, x * W> with respect to W if `weight`, else to x."""
    found = torch.ops.aten.convolution_backward(
        v.to(W.dtype), x.to(W.dtype), W, None, *geometry, [not weight, weight, False]
    )
    return found[1 if weight else 0].to(v.dtype)


def _plain(a: Tensor) -> bool:
    """Whether a is an ordinary tensor; vmap and torch.compile have no rule for a product that returns its sums."""
    return not torch.compiler.is_compiling() and not torch._C._functorch.is_functorch_wrapped_tensor(a)
