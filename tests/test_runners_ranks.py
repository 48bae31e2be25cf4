"""Processes of a run: what they sum, and that a step which one of them cannot take changes nothing on any."""

import os
from collections.abc import Callable
from typing import Any

import pytest
import ranks
import torch
from distributed_cases import F64, far, mlp, points
from torch import Tensor

import altmin
from altmin.runners.distributed import Distributed
from altmin.runners.ranks import Ranks, bounds, digest


@pytest.mark.parametrize("samples, size", [(7, 3), (4, 4), (10, 4), (1, 1), (5, 2)])
def test_every_row_belongs_to_one_rank_and_no_rank_has_two_more_than_another(samples: int, size: int) -> None:
    cuts = [bounds(samples, rank, size) for rank in range(size)]
    assert [row for first, end in cuts for row in range(first, end)] == list(range(samples))
    lengths = [end - first for first, end in cuts]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("place", [0, 4095])
def test_a_digest_differs_for_batches_that_differ_in_their_first_entries(place: int) -> None:
    x = torch.arange(5000.0)
    other = x.clone()
    other[place] += 1
    assert digest(x) == digest(x.clone()) != digest(other)
    assert digest(x, x) != digest(x)


def test_without_other_processes_there_is_one_rank_that_agrees_with_itself() -> None:
    alone = Ranks()
    alone.check_same(7, "never raised")
    assert (alone.rank, alone.size, alone.total(2.5, 1)) == (0, 1, [2.5, 1])


# Three processes, one trainer after the other


def error_of(function: Callable[[], Any]) -> str:
    """The kind and the text of the error that a function ends with."""
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def with_nan(rank: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone()
    x[8, 2] = torch.nan  # a row of the last rank
    return x, y


def too_large(rank: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x * 1e200, y


def other_batch(rank: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x, y.roll(rank)


def other_numbers(rank: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    torch.manual_seed(rank)
    return x, y


STEPS = (with_nan, too_large, other_batch, other_numbers)


def sums() -> list[float]:
    """Sums of two messages."""
    group = Ranks()
    share = group.share(0, 1, 2)
    first = share.begin(torch.tensor([1.0 + group.rank, 2.0, 3.0], dtype=F64))()
    wait = share.begin(torch.tensor([5.0 * group.rank] * 4))
    return [*first.tolist(), *wait().tolist()]


def on_rank(rank: int) -> dict[str, Any]:
    x, y = points(9)
    found: dict[str, Any] = {"sums": sums()}
    found["differ"] = error_of(lambda: Ranks().check_same(rank, "numbers differ"))
    for give in STEPS:
        torch.manual_seed(0)
        am = Distributed(altmin.AltMin(mlp()))
        before = [p.detach().clone() for p in am.model.parameters()]
        text = error_of(lambda am=am, give=give: am.step(*give(rank, x, y)))
        changed = far([p.detach() for p in am.model.parameters()], before)
        torch.manual_seed(0)
        again = error_of(lambda am=am: am.step(x, y))
        found[give.__name__] = text, changed, again, [p.detach() for p in am.model.parameters()]

    def dies(output: Tensor, y: Tensor) -> Tensor:
        if rank == 2:
            os._exit(1)
        return torch.nn.functional.cross_entropy(output, y)

    am = Distributed(altmin.AltMin(mlp(), loss=dies, check=False))
    before = [p.detach().clone() for p in am.model.parameters()]
    found["lost"] = error_of(lambda: am.step(x, y)), far([p.detach() for p in am.model.parameters()], before)
    return found


@pytest.fixture(scope="module")
def three() -> list[dict[str, Any]]:
    """What the ranks report that have not died in the end."""
    found = ranks.run(3, on_rank)
    assert found.pop() is None
    return found


def test_sums_are_over_ranks(three: Any) -> None:
    expected = [6.0, 6.0, 9.0, 15.0, 15.0, 15.0, 15.0]
    assert [found["sums"] for found in three] == [expected] * 2


def test_what_must_be_the_same_on_all_ranks_is_compared(three: Any) -> None:
    assert [found["differ"] for found in three] == ["ValueError: numbers differ"] * 2


@pytest.mark.parametrize("name", [give.__name__ for give in STEPS])
def test_a_step_that_a_rank_cannot_take_changes_nothing_and_the_next_is_that_of_one_process(
    three: Any, name: str
) -> None:
    am = altmin.AltMin(mlp())
    am.step(*points(9))
    for found in three:
        text, changed, again, weights = found[name]
        assert text.startswith(("Diverged", "ValueError"))
        assert ("different batches" in text) == name.startswith("other")
        assert (changed, again) == (0.0, "")
        assert far(weights, [p.detach() for p in am.model.parameters()]) < 1e-13


def test_a_rank_that_dies_in_a_step_is_a_lost_connection_for_the_others(three: Any) -> None:
    for found in three:
        text, changed = found["lost"]
        assert text.startswith("ConnectionError")
        assert changed == 0.0
