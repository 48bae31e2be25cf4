"""Results are kept by run and seed, and read back as they were."""

from pathlib import Path
from typing import Any

import pytest

from altmin.paper.reproduce.results import Results, deviation, words
from altmin.paper.reproduce.run import Run

RUN = Run("adam", "mlp-1x4", epochs=2, seeds=2, eval_batches=(3,))


def row(seed: int, first: float, last: float, run: Run = RUN) -> dict[str, Any]:
    epochs = [{"epoch": n, "train_loss": 1.0, "test_accuracy": a} for n, a in ((1, first), (2, last))]
    return {
        "config": run.config(),
        "seed": seed,
        "batches": [{"batch": 3, "test_accuracy": first / 2}],
        "epochs": epochs,
    }


def test_values_are_those_of_every_seed_at_one_place() -> None:
    results = Results([row(1, 0.6, 0.8), row(0, 0.5, 0.7), row(0, 0.1, 0.1, Run("sgd", "mlp-1x4"))])
    assert results.values(RUN, epoch=1) == [0.5, 0.6]
    assert results.values(RUN, epoch=-1) == [0.7, 0.8]
    assert results.values(RUN, batch=3) == [0.25, 0.3]


def test_a_run_lacks_the_seeds_that_were_not_made() -> None:
    results = Results([row(1, 0.6, 0.8)])
    assert results.missing(RUN) == [0]
    assert results.missing(Run("sgd", "mlp-1x4", seeds=2)) == [0, 1]
    with pytest.raises(KeyError):
        results.values(RUN, epoch=1)


def test_a_seed_that_diverged_before_counts_as_nothing_reached() -> None:
    results = Results([row(0, 0.5, 0.7), {**row(1, 0.5, 0.6), "epochs": [], "diverged": "the loss"}])
    assert results.values(RUN, epoch=-1) == [0.7, 0.0]


def test_what_is_added_is_in_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "fig.jsonl"
    results = Results.read(path)
    results.add([row(0, 0.5, 0.7)])
    results.add([row(1, 0.6, 0.8)])
    assert Results.read(path).rows == results.rows
    assert not Results.read(path).missing(RUN)
    path.write_text(path.read_text() + "{broken\n")
    with pytest.raises(ValueError, match=r"line 3 of .*fig\.jsonl is no result; delete it"):
        Results.read(path)


def test_words_have_the_spread_of_several_seeds() -> None:
    assert words([0.25]) == "0.250"
    assert words([0.2, 0.4]) == "0.300 ± 0.141"
    assert deviation([0.2]) == 0.0
