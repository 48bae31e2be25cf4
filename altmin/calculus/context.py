"""How one mini-batch is computed: the choices of its runner, passed to every operation.

The algorithm does not depend on its runner. One process, ranks, an ensemble and a captured step differ only in a
`Context`: how sums over samples are taken, the weights of samples, how products are rounded, and whether numbers
may be read on the processor.
"""

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from altmin.calculus.numbers import Floats, Scalars

SHORT = 1 << 15
"""Entries up to which a product of vectors is faster without the threads of BLAS."""
BUCKET = 1 << 22
"""Bytes that `BucketedSum` sends together."""


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
    sample of weight w counts as w samples; None: all count once. bf16: whether operands of products with weights are
    rounded to bfloat16. numbers: how columns of numbers are computed with. `Floats`: they may be read on the processor,
    which then may decide by them; `Tensors` inside `torch.func` transforms and in a captured step; `Scalars` in one
    that is compiled. traced: whether the step is inside `torch.func` or `torch.compile`, where a tensor has no autograd
    graph of its own and some kernels cannot be used. eager: whether numbers are `Floats`.
    """

    shard: BatchShard | None = None
    weights: Tensor | None = None
    bf16: bool = False
    numbers: Any = Floats
    traced: bool = False
    eager: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "eager", self.numbers is Floats)

    def count(self, n: int) -> int:
        """The number of entries on all ranks, given that of this rank; each sample has the same number."""
        return n if self.shard is None else n * self.shard.of // self.shard.own

    def every(self, n: int, step: int) -> slice:
        """Which of this rank's n rows are every step-th of the whole mini-batch.

        >>> [Context(BatchShard(print, 3 * r, 3, 6)).every(3, 4) for r in (0, 1)]
        [slice(0, None, 4), slice(1, None, 4)]
        """
        return slice(0 if self.shard is None else -(n * self.shard.start // self.shard.own) % step, None, step)

    def sum(self, *tensors: Tensor) -> Sequence[Tensor]:
        """Tensors of one type and device summed over ranks, in one message."""
        if self.shard is None:
            return tensors
        flat = self.shard.begin(torch.cat([t.reshape(-1) for t in tensors]))()
        return [part.view(t.shape) for part, t in zip(flat.split([t.numel() for t in tensors]), tensors, strict=True)]

    def sum_numbers(self, *numbers: float) -> Sequence[float]:
        """Numbers summed over ranks, in one message."""
        if self.shard is None:
            return numbers
        return self.sum(torch.tensor(numbers, dtype=torch.float64))[0].tolist()

    def draw(self, shape: Sequence[int], draw: Callable[[Sequence[int]], Tensor]) -> Tensor:
        """Random numbers of a shape whose first dimension counts rows of the batch. All ranks draw those of all rows,
        from the same state of their generators, and each takes its own."""
        if self.shard is None:
            return draw(shape)
        per_sample = shape[0] // self.shard.own
        whole = draw((per_sample * self.shard.of, *shape[1:]))
        return whole[per_sample * self.shard.start :][: shape[0]]

    def weighted(self, t: Tensor) -> Tensor:
        """t, whose rows belong to samples, times the samples' weights.

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

    def inner_column(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> Any:
        """`inners` as a column of `numbers`."""
        plain = self.shard is None and self.weights is None
        if plain and self.numbers is Scalars:
            return list(_by_rows(pairs).unbind())
        if not plain or not self.eager or pairs[0][0].is_cuda:
            return self.numbers.read(self.inners(pairs))
        found = []
        for u, v in pairs:
            if u.numel() > SHORT:
                found.append(_dot(u, v).item())
            elif u is v:
                norm = torch.linalg.vector_norm(u).item()
                found.append(norm * norm)
            else:
                found.append((u * v).sum().item())
        return found

    def inners(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """<u, v> of each pair over the whole mini-batch, sum_t w_t <u_t, v_t>, as one vector.

        >>> x, y = torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 2.0]])
        >>> LOCAL.inners([(x, x), (x, y)])
        tensor([25., 11.])
        """
        if self.weights is not None:
            found = torch.stack([(self.weighted(u) * v).sum() for u, v in pairs])
        elif self.traced:
            found = _by_rows(pairs)
        else:
            found = torch.stack([_dot(u, v) for u, v in pairs])
        found = found if self.shard is None else self.sum(found)[0]
        return self.host(found) if found.is_cuda else found

    def host(self, numbers: Tensor) -> Tensor:
        """Numbers in main memory where they may be read: there a computation with few of them takes less time than it
        takes to start a kernel on a GPU, and any tensor can be multiplied by one. Elsewhere they stay as they are."""
        return numbers.cpu() if self.eager else numbers

    def samples(self, t: Sized) -> Tensor | int:
        """The number of samples on all ranks, given this rank's as rows of t; the sum of their weights if they have
        any."""
        return self.count(len(t)) if self.weights is None else self.sum(self.weights.sum())[0]


def _by_rows(pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """<u, v> of each pair as one vector. A compiled function sums each row where u and v are made, and then all rows of
    all pairs in one kernel; sums over whole tensors would take two kernels for each pair."""
    rows = [(u * v).sum(tuple(range(1, u.ndim))) if u.ndim > 1 else u * v for u, v in pairs]
    if len({len(row) for row in rows}) > 1:
        return torch.stack([row.sum() for row in rows])
    return torch.stack(rows).sum(1)


def _dot(u: Tensor, v: Tensor) -> Tensor:
    """<u, v>. Sequences that lie in memory step by step (`calculus.recurrent`) are not copied."""
    if u.ndim == 3 and not u.is_contiguous():
        a, b = u.transpose(0, 1), v.transpose(0, 1)
        u, v = (a, b) if a.is_contiguous() and b.is_contiguous() else (u, v)
    return torch.dot(u.reshape(-1), v.reshape(-1))


LOCAL = Context()
"""One process, samples with equal weights, products in torch's precision."""


class BucketedSum:
    """Trees of tensors that are summed over ranks while others are still computed: a message leaves as soon as it is
    full. In one process they stay as they are."""

    def __init__(self, context: Context):
        self.shard = context.shard
        self.waiting: list[Tensor] = []
        self.size = 0
        self.sent: list[tuple[list[Tensor], Callable[[], Tensor]]] = []

    def add(self, tree: Any) -> Any:
        """A tree of tensors and numbers, whose tensors hold their sums after `finish`."""
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
        """Writes the sums over the tensors of all trees that were added. Numbers travel with the last message; their
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
    """A tree of tensors summed over ranks; in one process the tree itself."""
    if context.shard is None:
        return tree
    sums = BucketedSum(context)
    tree = pytree.tree_map_only(Tensor, sums.add, tree)
    sums.finish()
    return tree
