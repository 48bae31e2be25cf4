"""A mini-batch whose samples are spread over several processes (ranks): sums over its samples go over all of them.

Every rank has the same weights and some rows of the batch. What a step decides by, the sums of its line searches, of
the loss and of the gradients of parameters, is summed over ranks before it is used, so that all ranks decide alike and
have the same weights afterwards: those of one process with all rows, up to the order in which numbers are added.
Without a share, which is the ordinary case, the functions here hand back what they are given.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from altmin.common.flags import Scoped

BUCKET = 1 << 22
"""Bytes of gradients that are sent together."""


class Share(NamedTuple):
    """What one rank has of a mini-batch: rows start, ..., start + own - 1 of `of`. begin(t) begins to sum a flat tensor
    over ranks, in place; the function that it returns waits for the sum and gives it. rank, size: which of how many
    this is, for methods that keep variables for each sample: they are given all rows, and take those of their own."""

    begin: Callable[[Tensor], Callable[[], Tensor]]
    start: int
    own: int
    of: int
    rank: int = 0
    size: int = 1


_share: Scoped[Share | None] = Scoped(None)


@contextmanager
def sharing(share: Share | None) -> Iterator[None]:
    """Sums over samples go over all ranks within, in this thread; None: they do not."""
    with _share.set(share):
        yield


def shared() -> Share | None:
    """The share of this thread's mini-batch, None if it has all of it."""
    return _share.value


def of_all(count: int) -> int:
    """How many entries all ranks have, where this one has so many, as many for each of its samples."""
    share = _share.value
    return count if share is None else count * share.of // share.own


def summed(*tensors: Tensor) -> Sequence[Tensor]:
    """Tensors of one type and device summed over ranks, in one message; with no other ranks, themselves."""
    share = _share.value
    if share is None:
        return tensors
    flat = share.begin(torch.cat([t.reshape(-1) for t in tensors]))()
    return [part.view(t.shape) for part, t in zip(flat.split([t.numel() for t in tensors]), tensors, strict=True)]


def summed_numbers(*numbers: float) -> Sequence[float]:
    """Numbers summed over ranks in one message."""
    if _share.value is None:
        return numbers
    return summed(torch.tensor(numbers, dtype=torch.float64))[0].tolist()


def drawn(shape: Sequence[int], draw: Callable[[Sequence[int]], Tensor]) -> Tensor:
    """Random numbers of a shape whose first dimension counts rows of the batch. All ranks draw those of all rows, in
    the same state of their generators, and each takes its own."""
    share = _share.value
    if share is None:
        return draw(shape)
    per_sample = shape[0] // share.own
    whole = draw((per_sample * share.of, *shape[1:]))
    return whole[per_sample * share.start :][: shape[0]]


class Sums:
    """Trees of tensors that are summed over ranks while others are still computed: a message leaves as soon as it is
    full. Of one process they stay as they are."""

    def __init__(self) -> None:
        self.share = _share.value
        self.waiting: list[Tensor] = []
        self.size = 0
        self.sent: list[tuple[list[Tensor], Callable[[], Tensor]]] = []

    def add(self, tree: Any) -> Any:
        """A tree with tensors that `finish` gives their sums; it may be any tree of tensors and numbers."""
        if self.share is None:
            return tree
        leaves, form = pytree.tree_flatten(tree)
        leaves = [t.contiguous() if isinstance(t, Tensor) else t for t in leaves]
        self.waiting += [t for t in leaves if isinstance(t, Tensor)]
        self.size += sum(t.numel() * t.element_size() for t in leaves if isinstance(t, Tensor))
        if self.size >= BUCKET:
            self._send()
        return pytree.tree_unflatten(leaves, form)

    def finish(self, *numbers: Any) -> Sequence[Any]:
        """All trees that were added have their sums afterwards, written over their tensors; numbers travel with the
        last message, and their sums are returned."""
        if self.share is None:
            return numbers
        if not self.waiting and not self.sent:
            return summed_numbers(*numbers)
        if not self.waiting:
            self.waiting = [self.sent[-1][0][0].new_empty(0)]
        like = self.waiting[0]
        extra = torch.tensor(numbers, dtype=like.dtype, device=like.device)
        self.waiting.append(extra)
        self._send()
        for tensors, wait in self.sent:
            flat = wait()
            for t, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
                t.copy_(part.view(t.shape))
        self.sent = []
        return extra.tolist()

    def _send(self) -> None:
        assert self.share is not None
        self.sent.append((self.waiting, self.share.begin(torch.cat([t.view(-1) for t in self.waiting]))))
        self.waiting, self.size = [], 0
