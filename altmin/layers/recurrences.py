"""The recurrence h_t = tanh(U x_t + W h_{t-1} + b): by torch's own kernel, and for all members of an ensemble at once.

All tensors are (steps, samples, features).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

LARGEST = 1024
"""Units of all members that may lie side by side."""
RANGE = 1e16


def fused(x: Tensor, U: Tensor, W: Tensor, b: Tensor, b2: Tensor, *, train: bool = False) -> Tensor:
    """h_1..h_T by torch's own kernel. train: whether it is to be differentiated."""
    start = x.new_zeros(1, x.shape[1], len(W))
    return torch.rnn_tanh(x, start, [U, W, b, b2], True, 1, 0.0, train, False, False)[0]


def one_by_one(x: Tensor, U: Tensor, W: Tensor, b: Tensor, b2: Tensor) -> Tensor:
    """The same, step by step."""
    h, hs = None, []
    for c in F.linear(x, U, b + b2).unbind():
        h = torch.tanh(c if h is None else torch.addmm(c, h, W.mT))
        hs.append(h)
    return torch.stack(hs)


def together(x: Tensor, U: Tensor, W: Tensor, b: Tensor, b2: Tensor) -> Tensor:
    """The same inside `torch.func`, where the members of an ensemble are one layer: their units side by side, their
    weights in blocks. While it is small, the zeros between the blocks cost less than a loop over time.

    Zero times infinity is not zero: what one member has of that must not reach another through the zeros. So numbers
    are held in a range in which tanh has long been 1, and a member with an input that is not finite gets NaN alone.
    """
    return _Forward.apply(x, U, W, b, b2)


class _Forward(torch.autograd.Function):
    @staticmethod
    def forward(*given: Tensor) -> Tensor:
        return fused(*given)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        return _Backward.apply(*ctx.saved_tensors, v)

    @staticmethod
    def vmap(info: Any, dims: Any, *given: Tensor) -> tuple[Tensor, int]:
        x, *weights = _in_front(given, dims, info.batch_size)
        if _too_large(weights):
            return torch.func.vmap(one_by_one)(x, *weights), 0
        return _apart(fused(*_side_by_side(x, *weights)), len(x)).contiguous().add_(_bad(x)), 0


class _Backward(torch.autograd.Function):
    """J^T v for the input and every weight, by the kernel's own derivative."""

    @staticmethod
    def forward(*given: Tensor) -> tuple[Tensor, ...]:
        return _pull(fused, given[:-1], given[-1], train=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, dims: Any, *given: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        n = info.batch_size
        x, *weights, v = _in_front(given, dims, n)
        if _too_large(weights) or x.is_cuda:  # torch.func cannot differentiate cuDNN's kernel
            return torch.func.vmap(lambda *a: _pull(one_by_one, a[:-1], a[-1]))(x, *weights, v), (0,) * 5
        side, bad = _side_by_side(x, *weights), _bad(x) + _bad(v)
        gx, gU, gW, gb, gb2 = _pull(fused, side, _joined(v.nan_to_num()), train=True)
        own = _apart(gx, n), _diagonal(gU, n), _diagonal(gW, n), gb.view(n, -1), gb2.view(n, -1)
        return tuple(g + bad.view(n, *[1] * (g.ndim - 1)) for g in own), (0,) * 5


def _pull(f: Callable[..., Tensor], given: Sequence[Tensor], v: Tensor, **more: Any) -> tuple[Tensor, ...]:
    return torch.func.vjp(lambda *a: f(*a, **more), *given)[1](v)


def _in_front(given: Sequence[Tensor], dims: Sequence[int | None], n: int) -> list[Tensor]:
    """All with the members' dimension first."""
    return [t.expand(n, *t.shape) if dim is None else t.movedim(dim, 0) for t, dim in zip(given, dims, strict=True)]


def _too_large(weights: Sequence[Tensor]) -> bool:
    n, hidden = weights[1].shape[:2]
    return n * hidden > LARGEST


def _bad(t: Tensor) -> Tensor:
    """0 for each member, NaN where it has an entry that is not finite."""
    return 0 * t.flatten(1).sum(1).view(-1, 1, 1, 1)


def _side_by_side(x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """The one layer's input and weights."""
    x, U, W, b, b2 = (t.nan_to_num().clamp(-RANGE, RANGE) for t in (x, *weights))
    return _joined(x), _blocks(U), _blocks(W), b.flatten(), b2.flatten()


def _joined(t: Tensor) -> Tensor:
    """(members, steps, samples, features) with the members' features side by side."""
    return t.movedim(0, 2).flatten(2)


def _apart(t: Tensor, n: int) -> Tensor:
    return t.unflatten(2, (n, -1)).movedim(2, 0)


def _blocks(A: Tensor) -> Tensor:
    """The block-diagonal matrix of many (members, rows, columns).

    >>> _blocks(torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]]))
    tensor([[1., 2., 0., 0.],
            [0., 0., 3., 4.]])
    """
    n, rows, columns = A.shape
    out = A.new_zeros(n, rows, n, columns)
    out.diagonal(dim1=0, dim2=2).copy_(A.movedim(0, 2))
    return out.view(n * rows, n * columns)


def _diagonal(A: Tensor, n: int) -> Tensor:
    """The blocks of such a matrix."""
    return A.unflatten(1, (n, -1)).unflatten(0, (n, -1)).diagonal(dim1=0, dim2=2).movedim(2, 0)
