"""Every product with weights goes through here, so that one flag sets its precision.

While `rounding` is on, the operands of a product are rounded to bfloat16, which a matrix unit multiplies several times
as fast, and the sums that it forms in float32 come back in the type of the first operand:

    matmul(a, b) = round(a) round(b),        linear(x, W, b) = round(x) round(W)^T + b.

Only products are rounded. Weights, biases, codes, residuals, sums over samples and the state of optimizers are not.
Neither are modules without a closed form: they find a small move as a difference of two outputs, which would be lost in
the rounding. Nor is the forward pass of a recurrent layer: one kernel, bound by its steps and not by its products.
While `rounding` is off, a function here is the operation of torch that it is named after.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from altmin.common.flags import Flag

Geometry = Sequence[Any]
"""Stride, padding, dilation, transposed, output padding and groups, as torch.convolution takes them."""

SUMS_COME_OUT = hasattr(torch.ops.aten.mm, "dtype")
"""Whether torch can hand out the float32 sums of a bfloat16 product as they are: on CUDA, since 2.8."""

SMALL = 2**30
"""Multiplications below which a GPU is faster if a bias is added by a kernel of its own."""

_rounds = Flag()


@contextmanager
def rounding(on: bool) -> Iterator[None]:
    """Whether operands are rounded to bfloat16 meanwhile, in this thread.

    >>> with rounding(True):
    ...     matmul(torch.tensor([[1.001]]), torch.tensor([[3.0]]))
    tensor([[3.]])
    """
    with _rounds.set(on):
        yield


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """a b, for a matrix b."""
    return _rounded(a, b) if _rounds.on else a @ b


def batched(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """a_i b_i for every i of the first dimension; written to `out` if that is given."""
    if not _rounds.on:
        return torch.bmm(a, b, out=out)
    product = torch.bmm(a.bfloat16(), b.bfloat16()).to(a.dtype)
    return product if out is None else out.copy_(product)


def linear(x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """x W^T + b."""
    if not _rounds.on and b is not None and x.is_cuda and x.shape[0] * W.numel() < SMALL:
        # a sum would be compiled into one product with its bias again, a difference is not
        return x @ W.mT - (-b) if torch.compiler.is_compiling() else x @ W.mT + b
    if not _rounds.on:
        return F.linear(x, W, b)
    y = _rounded(x, W.mT)
    return y if b is None else y + b


def convolution(x: Tensor, W: Tensor, b: Tensor | None, geometry: Geometry) -> Tensor:
    """x * W + b."""
    if not _rounds.on:
        return torch.convolution(x, W, b, *geometry)
    y = torch.convolution(x.bfloat16(), W.bfloat16(), None, *geometry).to(x.dtype)
    return y if b is None else y + b.view(-1, *[1] * (x.ndim - 2))


def convolution_backward(v: Tensor, x: Tensor, W: Tensor, geometry: Geometry, weight: bool) -> Tensor:
    """The gradient of <v, x * W> with respect to W if `weight`, else to x."""
    operands = [t.bfloat16() for t in (v, x, W)] if _rounds.on else (v, x, W)
    found = torch.ops.aten.convolution_backward(*operands, None, *geometry, [not weight, weight, False])
    return found[1 if weight else 0].to(v.dtype)


def autocast(x: Tensor) -> AbstractContextManager[Any]:
    """For a forward pass and its loss by autograd: torch's own rounding, if products are rounded."""
    return torch.autocast(x.device.type, torch.bfloat16) if _rounds.on else nullcontext()


def _rounded(a: Tensor, b: Tensor) -> Tensor:
    p, q = a.bfloat16(), b.bfloat16()
    if SUMS_COME_OUT and a.is_cuda and _plain(a) and _plain(b):
        sums = torch.mm(p.reshape(-1, p.shape[-1]), q, out_dtype=torch.float32)
        return sums.view(*a.shape[:-1], q.shape[-1]).to(a.dtype)
    return (p @ q).to(a.dtype)


def _plain(a: Tensor) -> bool:
    """Whether a is a tensor as such; vmap and torch.compile know nothing of a product that hands out its sums."""
    return not torch.compiler.is_compiling() and not torch._C._functorch.is_functorch_wrapped_tensor(a)
