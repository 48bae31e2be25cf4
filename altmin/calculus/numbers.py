"""Numbers of a whole mini-batch: inner products, step lengths, squares.

In an eager step they are Python floats, read at once: a decision about a step is then taken on the processor, and no
kernel computes with single numbers, of which there are many. On a GPU reading waits for it, which costs less than
those kernels; `inners` reads several numbers in one wait. Inside `torch.func` and within `tensors()` they stay tensors
without dimensions, so that a step can be vectorised or captured. The functions here take both.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from altmin.calculus.ranks import summed, summed_numbers
from altmin.calculus.sample_weight import weighed, weighs
from altmin.common.flags import Flag
from altmin.common.fusing import fusible, vectorised

Number = Tensor | float
TINY = 1e-30
"""Squares below this count as nothing: a code whose gradient is that small does not move."""

_as_tensors = Flag()


@contextmanager
def tensors() -> Iterator[None]:
    """Numbers stay tensors within, on every device, in this thread."""
    with _as_tensors.set(True):
        yield


def eager() -> bool:
    """Whether a step runs at once and its numbers are read."""
    return not _as_tensors.on and not vectorised()


def number(t: Tensor) -> Number:
    """A tensor without dimensions as a number."""
    return t.item() if eager() else t


def inner(u: Tensor, v: Tensor) -> Number:
    """<u, v> over the whole mini-batch, also if its samples are spread over ranks; of weighted samples
    sum_t w_t <u_t, v_t>.

    >>> inner(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))
    11.0
    """
    return inners((u, v))[0]


def inners(*pairs: tuple[Tensor, Tensor]) -> list[Number]:
    """<u, v> of each pair over the whole mini-batch, read at once.

    >>> x, y = torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 2.0]])
    >>> inners((x, x), (x, y))
    [25.0, 11.0]
    """
    if torch.compiler.is_compiling() or not eager():
        return [_inner(u, v) for u, v in pairs]
    if weighs():
        pairs = tuple((weighed(u), v) for u, v in pairs)
    if not pairs[0][0].is_cuda:
        found = [torch.linalg.vector_norm(u).item() ** 2 if u is v else (u * v).sum().item() for u, v in pairs]
        return list(summed_numbers(*found))
    products = [torch.dot(u.reshape(-1), v.reshape(-1)) for u, v in pairs]  # one kernel each
    return summed(products[0] if len(products) == 1 else torch.stack(products))[0].view(-1).tolist()


@fusible
def _inner(u: Tensor, v: Tensor) -> Tensor:
    return (u * v).sum()


def over(a: Number, b: Number) -> Number:
    """a / b for b >= 0, where a b below `TINY` counts as `TINY`."""
    return a / (b.clamp_min(TINY) if isinstance(b, Tensor) else max(b, TINY))


def finite(a: Number) -> Any:
    return a.isfinite() if isinstance(a, Tensor) else math.isfinite(a)


def all_finite(t: Tensor) -> Any:
    """Whether all entries of a tensor are finite: a bool, or a tensor of one where numbers are tensors. Their sum tells
    a bool, many times faster than a look at each, unless it overflows.

    >>> all_finite(torch.tensor([3e38, 3e38])), all_finite(torch.tensor([1.0, torch.nan]))
    (True, False)
    """
    if not eager():
        return t.isfinite().all()
    return math.isfinite(t.sum().item()) or bool(t.isfinite().all())


def root(a: Number) -> Number:
    return a**0.5


def least(*numbers: Number) -> Number:
    """The smallest; what is not a number stays so."""
    found = numbers[0]
    for a in numbers[1:]:
        if isinstance(found, Tensor) or isinstance(a, Tensor):
            like: Any = found if isinstance(found, Tensor) else a
            found = torch.minimum(*(torch.as_tensor(n, dtype=like.dtype, device=like.device) for n in (found, a)))
        else:
            found = a if a != a or a < found else found
    return found


def not_above(a: Number, b: Number) -> Any:
    """Whether a <= b, or one of the two is not a number."""
    above = a > b
    return ~above if isinstance(above, Tensor) else not above


def size(a: Number) -> Number:
    return a.abs() if isinstance(a, Tensor) else abs(a)


def at_least(a: Number, low: float) -> Number:
    return a.clamp_min(low) if isinstance(a, Tensor) else max(a, low)


def select(ok: Any, new: Any, old: Any) -> Any:
    """new where ok, else old: one decision for whole trees of tensors and numbers of one form. If it is a tensor, what
    is neither comes from new; of what belongs to one of the two alone, what its `either` leaves."""
    if not isinstance(ok, Tensor):
        return new if ok else old
    pairs = list(_pairs(new, old))
    chosen = iter(_where(ok, [a for a, _ in pairs], [b for _, b in pairs]))
    return _filled(new, chosen)


def _branches(tree: Any) -> bool:
    return isinstance(tree, list | tuple) and not isinstance(tree, torch.Size)


def _pairs(new: Any, old: Any) -> Iterator[tuple[Tensor, Any]]:
    """The tensors of a tree, and what stands in their places in another."""
    if isinstance(new, Tensor):
        yield new, old
    elif _branches(new):
        for a, b in zip(new, old, strict=True):
            yield from _pairs(a, b)


def _filled(tree: Any, tensors: Iterator[Tensor]) -> Any:
    """The tree with other tensors in the places of its own."""
    if isinstance(tree, Tensor):
        return next(tensors)
    if not _branches(tree):
        return tree.either() if hasattr(tree, "either") else tree
    parts = [_filled(branch, tensors) for branch in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


@fusible
def _where(ok: Tensor, new: list[Tensor], old: list[Any]) -> tuple[Tensor, ...]:
    return tuple(torch.where(ok, a, b) for a, b in zip(new, old, strict=True))


def along(x: Tensor, a: Number, u: Tensor) -> Tensor:
    """x + a u."""
    return torch.addcmul(x, a.to(x.dtype), u) if isinstance(a, Tensor) else torch.add(x, u, alpha=a)
