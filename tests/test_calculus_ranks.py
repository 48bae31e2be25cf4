"""Sums over the samples of all ranks, and random numbers of which each rank takes its own."""

import pytest
import ranks
import torch

from altmin.calculus import ranks as module
from altmin.calculus.numbers import inner, inners
from altmin.calculus.ranks import Share, Sums, drawn, of_all, shared, sharing, summed, summed_numbers
from altmin.calculus.sample_weight import weighing

F64 = torch.float64


def silent(start: int, own: int, of: int) -> Share:
    """A share that must not send anything."""

    def begin(flat: torch.Tensor) -> None:
        raise AssertionError("nothing is to be sent")

    return Share(begin, start, own, of)  # type: ignore[arg-type]


def test_a_share_holds_within_and_not_after() -> None:
    share = silent(0, 2, 5)
    with sharing(share):
        assert shared() is share
        with sharing(None):
            assert shared() is None
        assert shared() is share
    assert shared() is None


def test_without_a_share_everything_stays_as_it_is() -> None:
    t, tree = torch.ones(3), {"a": [torch.ones(2), 4]}
    sums = Sums()
    assert summed(t)[0] is t
    assert summed_numbers(1.5, 2.0) == (1.5, 2.0)
    assert sums.add(tree) is tree
    assert sums.finish(7.0) == (7.0,)
    assert of_all(6) == 6
    assert torch.equal(drawn((2, 3), lambda shape: torch.full(shape, 5.0)), torch.full((2, 3), 5.0))


@pytest.mark.parametrize("own, of, count, expected", [(2, 5, 2, 5), (2, 5, 6, 15), (3, 7, 3, 7), (1, 4, 8, 32)])
def test_entries_of_all_ranks_are_known_from_those_of_one(own: int, of: int, count: int, expected: int) -> None:
    with sharing(silent(0, own, of)):
        assert of_all(count) == expected


@pytest.mark.parametrize("per_sample", [1, 3])
def test_ranks_draw_for_all_rows_and_take_their_own(per_sample: int) -> None:
    """Together they have what one process draws, and all generators end in the same state."""
    torch.manual_seed(1)
    whole, after = torch.randn(7 * per_sample, 2), torch.get_rng_state()
    found = []
    for start, own in ((0, 3), (3, 2), (5, 2)):
        torch.manual_seed(1)
        with sharing(silent(start, own, 7)):
            found.append(drawn((own * per_sample, 2), lambda shape: torch.randn(shape)))
        assert torch.equal(torch.get_rng_state(), after)
    assert torch.equal(torch.cat(found), whole)


def test_tensors_and_numbers_are_summed_in_one_message() -> None:
    def call(of: ranks.ThreadRanks) -> tuple:
        with sharing(of.share(0, 1, 3)):
            a, b = summed(torch.full((2, 3), of.rank + 1.0), torch.tensor(10.0 * of.rank))
            numbers = summed_numbers(1.0, float(of.rank))
        return a.tolist(), b.item(), list(numbers), of.messages

    assert ranks.threads(3, call) == [([[6.0] * 3] * 2, 30.0, [3.0, 3.0], 2)] * 3


def test_inner_products_are_those_of_all_rows_also_of_weighted_ones() -> None:
    g = torch.Generator().manual_seed(0)
    u, v = (torch.randn(5, 4, generator=g, dtype=F64) for _ in range(2))
    w = torch.tensor([1.0, 0.0, 2.0, 0.5, 3.0], dtype=F64)
    cuts = [(0, 2), (2, 5)]

    def call(of: ranks.ThreadRanks) -> tuple:
        rows = slice(*cuts[of.rank])
        with sharing(of.share(cuts[of.rank][0], len(u[rows]), 5)):
            plain = inners((u[rows], u[rows]), (u[rows], v[rows]))
            with weighing(w[rows]):
                return plain, inner(u[rows], v[rows]), of.messages

    for plain, weighted, messages in ranks.threads(2, call):
        assert plain == pytest.approx([float((u * u).sum()), float((u * v).sum())])
        assert weighted == pytest.approx(float((w.unsqueeze(1) * u * v).sum()))
        assert messages == 2


def test_trees_are_summed_and_numbers_go_with_the_last_message() -> None:
    def call(of: ranks.ThreadRanks) -> tuple:
        with sharing(of.share(0, 1, 2)):
            sums = Sums()
            turned = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).mT * (of.rank + 1)
            tree = sums.add({"a": turned, "rest": (torch.ones(()), 5)})
            early = sums.add([torch.full((3,), float(of.rank))])
            numbers = sums.finish(2.0, of.rank)
        return tree["a"].tolist(), tree["rest"][0].item(), tree["rest"][1], early[0].tolist(), numbers, of.messages

    expected = ([[3.0, 9.0], [6.0, 12.0]], 2.0, 5, [1.0] * 3, [4.0, 1.0], 1)
    assert ranks.threads(2, call) == [expected] * 2


def test_what_fills_a_message_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUCKET", 100)

    def call(of: ranks.ThreadRanks) -> tuple:
        with sharing(of.share(0, 1, 2)):
            sums, sent = Sums(), []
            trees = []
            for size in (20, 4, 10, 25):  # entries of four bytes
                trees.append(sums.add(torch.full((size,), of.rank + float(size))))
                sent.append(of.messages)
            numbers = sums.finish(1.0)
        assert all(torch.equal(t, torch.full((len(t),), 2.0 * len(t) + 1)) for t in trees)
        return sent, list(numbers), of.messages

    assert ranks.threads(2, call) == [([0, 0, 1, 2], [2.0], 3)] * 2


def test_numbers_alone_are_summed_too() -> None:
    def call(of: ranks.ThreadRanks) -> list:
        with sharing(of.share(0, 1, 2)):
            return list(Sums().finish(1.0, of.rank))

    assert ranks.threads(2, call) == [[2.0, 1.0]] * 2
