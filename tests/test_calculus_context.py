"""What a context hands down: sums over the samples of all ranks, samples that weigh, and random numbers of which each
rank takes its own."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from calculus_cases import close
from torch import Tensor

from altmin.calculus.context import LOCAL, BatchShard, BucketedSum, Context, sum_tree
from altmin.runners.functional import CompiledContext

F64 = torch.float64
CUTS = [(0, 2), (2, 5)]
"""The rows of two ranks."""


def silent(start: int, own: int, of: int) -> Context:
    """A rank that must not send anything."""

    def begin(flat: Tensor) -> Callable[[], Tensor]:
        raise AssertionError("nothing is to be sent")

    return Context(BatchShard(begin, start, own, of))


def ranks(call: Callable[[int, Context], Any]) -> tuple[list[Any], list[int]]:
    """What call(rank, context) returns on two ranks with the rows of `CUTS`, and the lengths of messages. They run
    one after the other, twice: first to learn what each sends, then with the sums."""
    sent: list[list[Tensor]] = [[], []]

    def first(rank: int) -> Callable[[Tensor], Callable[[], Tensor]]:
        return lambda flat: sent[rank].append(flat.clone()) or (lambda: flat)

    def then(rank: int) -> Callable[[Tensor], Callable[[], Tensor]]:
        totals = iter([a + b for a, b in zip(*sent, strict=True)])
        own = iter(sent[rank])

        def begin(flat: Tensor) -> Callable[[], Tensor]:
            assert torch.equal(flat, next(own))
            total = next(totals)
            return lambda: total

        return begin

    for begin in (first, then):
        shards = [BatchShard(begin(rank), start, end - start, 5, rank, 2) for rank, (start, end) in enumerate(CUTS)]
        found = [call(rank, Context(shard)) for rank, shard in enumerate(shards)]
    return found, [t.numel() for t in sent[0]]


def test_one_process_sends_nothing_and_leaves_everything_as_it_is() -> None:
    t, tree = torch.ones(3), {"a": [torch.ones(2), 4]}
    sums = BucketedSum(LOCAL)
    assert LOCAL.sum(t)[0] is t
    assert LOCAL.sum_numbers(1.5, 2.0) == (1.5, 2.0)
    assert LOCAL.weighted(t) is t
    assert sums.add(tree) is tree
    assert sum_tree(tree, LOCAL) is tree
    assert sums.finish(7.0) == (7.0,)
    assert (LOCAL.count(6), LOCAL.samples(t)) == (6, 3)
    assert torch.equal(LOCAL.draw((2, 3), lambda shape: torch.full(shape, 5.0)), torch.full((2, 3), 5.0))


@pytest.mark.parametrize("own, of, count, expected", [(2, 5, 2, 5), (2, 5, 6, 15), (3, 7, 3, 7), (1, 4, 8, 32)])
def test_entries_of_all_ranks_are_known_from_those_of_one(own: int, of: int, count: int, expected: int) -> None:
    assert silent(0, own, of).count(count) == expected
    assert silent(0, own, of).samples(torch.ones(count, 2)) == expected


@pytest.mark.parametrize("per_sample", [1, 3])
def test_ranks_draw_for_all_rows_and_take_their_own(per_sample: int) -> None:
    """Together they have what one process draws, and all generators end in the same state."""
    torch.manual_seed(1)
    whole, after = torch.randn(7 * per_sample, 2), torch.get_rng_state()
    found = []
    for start, own in ((0, 3), (3, 2), (5, 2)):
        torch.manual_seed(1)
        found.append(silent(start, own, 7).draw((own * per_sample, 2), torch.randn))
        assert torch.equal(torch.get_rng_state(), after)
    assert torch.equal(torch.cat(found), whole)


def test_tensors_and_numbers_are_summed_in_one_message_each() -> None:
    def call(rank: int, context: Context) -> tuple[Any, ...]:
        a, b = context.sum(torch.full((2, 3), rank + 1.0), torch.tensor(10.0 * rank))
        return a.tolist(), b.item(), list(context.sum_numbers(1.0, float(rank)))

    assert ranks(call) == ([([[3.0] * 3] * 2, 10.0, [2.0, 1.0])] * 2, [7, 2])


@pytest.mark.parametrize("weighted, kind", [(False, Context), (True, Context), (False, CompiledContext)])
def test_inner_products_are_those_of_all_rows_each_times_its_weight(weighted: bool, kind: type[Context]) -> None:
    """In one process, over ranks, and by sums of products of floats; in any layout of memory."""
    g = torch.Generator().manual_seed(0)
    u, v = (torch.randn(5, 4, 3, generator=g, dtype=F64) for _ in range(2))
    w = torch.tensor([1.0, 0.0, 2.0, 0.5, 3.0], dtype=F64) if weighted else torch.ones(5, dtype=F64)

    def product(a: Tensor, b: Tensor) -> float:
        rows = zip(w.tolist(), a.flatten(1).tolist(), b.flatten(1).tolist(), strict=True)
        return sum(each * p * q for each, x, y in rows for p, q in zip(x, y, strict=True))

    expected = torch.tensor([float(w.sum()), product(u, u), product(u, v), product(v.mT, v.mT)], dtype=F64)

    def inners(rank: int | None, shard: BatchShard | None) -> Tensor:
        rows = slice(None) if rank is None else slice(*CUTS[rank])
        context = kind(shard, w[rows] if weighted else None)
        a, b = u[rows], v[rows]
        samples = torch.as_tensor(context.samples(a), dtype=F64).view(1)
        return torch.cat([samples, context.inners([(a, a), (a, b), (b.mT, b.mT)])])

    close(inners(None, None), expected)
    if kind is CompiledContext:  # of one process
        return
    found, messages = ranks(lambda rank, context: inners(rank, context.shard))
    for each in found:
        close(each, expected)
    assert messages == [1, 3][not weighted :], "one vector, and the number of samples if they weigh"


def test_a_sample_of_weight_w_counts_as_w_samples() -> None:
    times = torch.tensor([2, 0, 3])
    u, v = torch.randn(2, 3, 4, dtype=F64, generator=torch.Generator().manual_seed(0))
    context = Context(weights=times.double())
    again = u.repeat_interleave(times, 0)
    close(context.inners([(u, v)]), LOCAL.inners([(again, v.repeat_interleave(times, 0))]))
    close(context.weighted(u).sum(0), again.sum(0))
    assert context.samples(u) == len(again)
    with pytest.raises(ValueError, match="each of the 3 samples, and a block of this model gives 12 rows; repeat"):
        context.weighted(torch.ones(12, 2))


def test_trees_are_summed_and_numbers_go_with_the_last_message() -> None:
    def call(rank: int, context: Context) -> tuple[Any, ...]:
        sums = BucketedSum(context)
        turned = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).mT * (rank + 1)
        tree = sums.add({"a": turned, "rest": (torch.ones(()), 5)})
        early = sums.add([torch.full((3,), float(rank))])
        numbers = sums.finish(2.0, rank)
        return tree["a"].tolist(), tree["rest"][0].item(), tree["rest"][1], early[0].tolist(), numbers

    assert ranks(call) == ([([[3.0, 9.0], [6.0, 12.0]], 2.0, 5, [1.0] * 3, [4.0, 1.0])] * 2, [4 + 1 + 3 + 2])
    assert ranks(lambda rank, context: list(BucketedSum(context).finish(1.0, rank)))[0] == [[2.0, 1.0]] * 2
    whole = ranks(lambda rank, context: sum_tree({"a": [torch.full((2,), float(rank)), 4]}, context))[0]
    assert [(each["a"][0].tolist(), each["a"][1]) for each in whole] == [([1.0, 1.0], 4)] * 2
