"""Values of runs beside each other, and a verdict with its reasons."""

from typing import Any

import pytest

from altmin.paper.reproduce.judging import Compared, compared, finding, over
from altmin.paper.reproduce.results import Results
from altmin.paper.reproduce.run import Run

RUNS = [Run("adam", "mlp-1x4", seeds=2, eval_batches=(1, 2)), Run("sgd", "mlp-1x4", seeds=1, label="plain")]


def row(run: Run, seed: int, batches: dict[int, float], end: float) -> dict[str, Any]:
    return {
        "config": run.config(),
        "seed": seed,
        "batches": [{"batch": n, "test_accuracy": a} for n, a in batches.items()],
        "epochs": [{"epoch": 1, "test_accuracy": end}],
    }


MADE = Results(
    [row(RUNS[0], 0, {1: 0.1, 2: 0.3}, 0.5), row(RUNS[0], 1, {1: 0.3, 2: 0.7}, 0.7), row(RUNS[1], 0, {}, 0.4)]
)


def test_runs_are_compared_by_name_after_an_epoch_with_mean_and_spread() -> None:
    found = compared(MADE, RUNS, "a net", epoch=-1)
    assert (found["adam"], found["plain"]) == (pytest.approx(0.6), 0.4)
    assert str(found) == "a net: adam 0.600 ± 0.141, plain 0.400"
    assert found.spread == pytest.approx(2**0.5 * 0.1), "of two values 0.2 apart; one seed has none"


def test_a_mean_over_batches_is_taken_of_every_seed() -> None:
    assert over(MADE, RUNS[:1], "a net", (1, 2)).values == {"adam": pytest.approx([0.2, 0.5])}


def test_a_run_that_was_not_made_cannot_be_compared() -> None:
    with pytest.raises(KeyError):
        compared(MADE, [Run("adam", "mlp-2x4")], "a net", epoch=-1)


def test_a_claim_holds_if_nothing_speaks_against_it_and_else_says_all_that_does() -> None:
    group = Compared("net", {"adam": [0.5]})
    held = finding([group], {"too low": False}, "by the way")
    assert (held.holds, held.ours, held.spread) == (True, "net: adam 0.500; by the way", 0.0)
    failed = finding([group, group], {"too low": True, "too high": False, "too late": True})
    assert (failed.holds, failed.because) == (False, "too low and too late")
