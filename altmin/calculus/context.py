"""Sums over the samples of a mini-batch, as a runner passes them to every operation.

The algorithm does not depend on its runner. One process, ranks, an ensemble and a recorded step differ only in their
`Context`.
"""

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

BUCKET = 1 << 22
"""Number of bytes that `BucketedSum` sends together."""


class BatchShard(NamedTuple):
    """The part of a mini-batch on one rank: rows start, ..., start + own - 1 of `of`.

    begin(t) starts to sum a flat tensor over ranks, in place, and returns a function that waits for the sum and gives
    it. rank, size: which of how many this is, for methods that keep variables for each sample: they get all rows and
    use their own.
    """

    begin: Callable[[Tensor], Callable[[], Tensor]]
    start: int
    own: int
    of: int
    rank: int = 0
    size: int = 1


@dataclass(frozen=True, eq=False)
class Context:
    """The context of one mini-batch.

    shard: this rank's rows, where samples are spread over ranks; None in one process. weights: of the samples, (n,); a
    sample of weight w counts as w samples; None: all count once.
    """

    shard: BatchShard | None = None
    weights: Tensor | None = None

    def count(self, n: int) -> int:
        """Return the number of entries on all ranks, given that of this rank; each sample has the same number."""
        return n if self.shard is None else n * self.shard.of // self.shard.own

    def every(self, n: int, step: int) -> slice:
        """Return which of this rank's n rows are every step-th of the whole mini-batch.

        >>> [Context(BatchShard(print, 3 * r, 3, 6)).every(3, 4) for r in (0, 1)]
        [slice(0, None, 4), slice(1, None, 4)]
        """
        return slice(0 if self.shard is None else -(n * self.shard.start // self.shard.own) % step, None, step)

    def sum(self, *tensors: Tensor) -> Sequence[Tensor]:
        """Return tensors of one type and device summed over ranks, in one message."""
        if self.shard is None:
            return tensors
        flat = self.shard.begin(torch.cat([t.reshape(-1) for t in tensors]))()
        return [part.view(t.shape) for part, t in zip(flat.split([t.numel() for t in tensors]), tensors, strict=True)]

    def sum_numbers(self, *numbers: float) -> Sequence[float]:
        """Return numbers summed over ranks, in one message."""
        if self.shard is None:
            return numbers
        return self.sum(torch.tensor(numbers, dtype=torch.float64))[0].tolist()

    def draw(self, shape: Sequence[int], draw: Callable[[Sequence[int]], Tensor]) -> Tensor:
        """Return random numbers of a shape whose first dimension counts rows of the batch. All ranks draw those of all
        rows, from the same state of their generators, and each takes its own."""
        if self.shard is None:
            return draw(shape)
        per_sample = shape[0] // self.shard.own
        whole = draw((per_sample * self.shard.of, *shape[1:]))
        return whole[per_sample * self.shard.start :][: shape[0]]

    def weighted(self, t: Tensor) -> Tensor:
        """Return t, whose rows belong to samples, times the samples' weights.

        >>> Context(weights=torch.tensor([2.0, 0.5])).weighted(torch.ones(2, 3)).tolist()
        [[2.0, 2.0, 2.0], [0.5, 0.5, 0.5]]
        """
        if self.weights is None:
            return t
        if len(t) != len(self.weights):
            raise ValueError(
                f"sample weights need codes with one row for each of the {len(self.weights)} samples, and a block of "
                f"this model gives {len(t)} rows; repeat samples instead of weighing them (nothing was changed)"
            )
        return t * self.weights.view(-1, *[1] * (t.ndim - 1))

    def inners(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Return <u, v> of each pair over the whole mini-batch, sum_t w_t <u_t, v_t>, as one vector; a pair that
        occurs twice is computed once.

        >>> x, y = torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 2.0]])
        >>> LOCAL.inners([(x, x), (x, y)])
        tensor([25., 11.])
        """
        products: dict[tuple[int, int], Tensor] = {}
        vector = []
        for u, v in pairs:
            if (id(u), id(v)) not in products:
                w = u if self.weights is None else self.weighted(u)
                products[id(u), id(v)] = torch.dot(w.reshape(-1), v.reshape(-1))
            vector.append(products[id(u), id(v)])
        whole = torch.stack(vector)
        return whole if self.shard is None else self.sum(whole)[0]

    def numbers(self, vector: Tensor) -> list[Any]:
        """Return the entries of a vector as the algorithm computes with them: here as floats, which are read once. A
        recorded step has them as tensors without dimensions."""
        entries: list[Any] = vector.tolist()
        return entries

    def choose(self, condition: Any, first: Sequence[Any], second: Sequence[Any]) -> Sequence[Any]:
        """Return the first numbers and tensors where a condition between `numbers` holds, else the second."""
        return first if condition else second

    def less(self, x: Tensor, u: Tensor, a: Any) -> Tensor:
        """Return x - a u, for one of the `numbers` a."""
        return torch.sub(x, u, alpha=a)

    def samples(self, t: Sized) -> Tensor | int:
        """Return the number of samples on all ranks, given this rank's as rows of t; the sum of their weights if they
        have any."""
        if self.weights is None:
            return len(t) if self.shard is None else self.count(len(t))
        return self.sum(self.weights.sum())[0]


LOCAL = Context()
"""One process, samples with equal weights."""


class BucketedSum:
    """Trees of tensors that are summed over ranks while others are still computed: a message leaves as soon as it is
    full. In one process they stay as they are."""

    def __init__(self, context: Context):
        self.shard = context.shard
        self.waiting: list[Tensor] = []
        self.size = 0
        self.sent: list[tuple[list[Tensor], Callable[[], Tensor]]] = []

    def add(self, tree: Any) -> Any:
        """Return a tree of tensors and numbers, whose tensors hold their sums after `finish`."""
        if self.shard is None:
            return tree
        leaves, form = pytree.tree_flatten(tree)
        leaves = [t.contiguous() if isinstance(t, Tensor) else t for t in leaves]
        self.waiting += [t for t in leaves if isinstance(t, Tensor)]
        self.size += sum(t.numel() * t.element_size() for t in leaves if isinstance(t, Tensor))
        if self.size >= BUCKET:
            self._send()
        return pytree.tree_unflatten(leaves, form)

    def finish(self, *numbers: Any) -> Sequence[Any]:
        """Write the sums over the tensors of all trees that were added. Numbers travel with the last message; their
        sums are returned."""
        if self.shard is None:
            return numbers
        if not self.waiting:
            self.waiting = [self.sent[-1][0][0].new_empty(0) if self.sent else torch.empty(0, dtype=torch.float64)]
        like = self.waiting[0]
        extra = torch.tensor([float(n) for n in numbers], dtype=like.dtype, device=like.device)
        self.waiting.append(extra)
        self._send()
        for tensors, wait in self.sent:
            flat = wait()
            for t, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
                t.copy_(part.view(t.shape))
        self.sent = []
        return extra.tolist()

    def _send(self) -> None:
        assert self.shard is not None
        self.sent.append((self.waiting, self.shard.begin(torch.cat([t.view(-1) for t in self.waiting]))))
        self.waiting, self.size = [], 0


def sum_tree(tree: Any, context: Context) -> Any:
    """Return a tree of tensors summed over ranks; in one process the tree itself."""
    if context.shard is None:
        return tree
    sums = BucketedSum(context)
    tree = pytree.tree_map_only(Tensor, sums.add, tree)
    sums.finish()
    return tree
