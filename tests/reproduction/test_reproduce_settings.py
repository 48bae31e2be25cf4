"""Figures take the options that a search found best, and their own where there was none."""

import json
from pathlib import Path
from typing import Any

import pytest

from reproduction import folders
from reproduction.figure import load
from reproduction.folders import FIGURES
from reproduction.run import Run
from reproduction.settings import History, settings

RUN = Run("adam", "mlp-1x4", options={"weight_decay": 0.5}, part="validation")
ADAM = {"method": "adam", "model": "mlp-1x4"}


def row(lr: float, *accuracy: float, run: Run = RUN, at_batch: int | None = None) -> dict[str, Any]:
    seeds = list(range(len(accuracy)))
    tried = {"options": {"lr": lr}, "accuracy": list(accuracy), "seeds": seeds}
    return {"config": run.config(), "at_batch": at_batch, **tried}


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    monkeypatch.setattr(folders, "RESULTS", tmp_path)
    return History.read(folders.history(tmp_path, "fig"))


def test_the_best_mean_over_seeds_is_chosen_and_the_first_of_equal_ones(history: History) -> None:
    history.add([row(0.1, 1.0, 0.125), row(0.2, 0.75, 0.5), row(0.3, 0.5, 0.75), row(0.4, 0.0, 0.875)])
    assert settings("fig", **ADAM, default={"lr": 7}) == {"weight_decay": 0.5, "lr": 0.2}
    history.add([row(0.5, 0.75, 0.75)])
    assert settings("fig", **ADAM, default={"lr": 7})["lr"] == 0.5, "the file is read again"


def test_without_a_search_of_it_the_default_stands(history: History) -> None:
    default = {"lr": 7}
    assert settings("fig", **ADAM, default=default) == default
    assert settings("fig", **ADAM, default=default) is not default
    history.add([row(0.1, 0.9)])
    assert settings("fig", method="sgd", model="mlp-1x4", default=default) == default
    assert settings("fig", method="adam", model="mlp-1x5", default=default) == default
    assert settings("fig", **ADAM, data="cifar10", default=default) == default
    assert settings("other", **ADAM, default=default) == default


def test_of_one_run_searched_in_several_ways_the_last_counts_or_the_one_that_is_named(history: History) -> None:
    long = Run("adam", "mlp-1x4", epochs=9, part="validation")
    history.add([row(0.1, 0.9), row(0.2, 0.5, run=long), row(0.3, 0.4, run=long)])
    assert settings("fig", **ADAM, default={})["lr"] == 0.2
    assert settings("fig", **ADAM, epochs=1, default={})["lr"] == 0.1
    history.add([row(0.4, 0.1, run=long, at_batch=5)])
    assert settings("fig", **ADAM, default={})["lr"] == 0.4


def test_a_damaged_line_is_named(history: History) -> None:
    history.add([row(0.1, 0.9)])
    path = history.path
    assert path is not None
    path.write_text(path.read_text() + json.dumps({"config": {}, "options": {}}) + "\n")
    with pytest.raises(ValueError, match=r"line 2 of .*fig\.jsonl is no result; delete it"):
        settings("fig", **ADAM, default={})


def test_the_package_alone_has_the_settings_that_the_committed_histories_choose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def options() -> dict[str, list[Any]]:
        return {name: [getattr(run, "options", None) for run in each.runs] for name, each in load(FIGURES).items()}

    in_a_clone = options()
    monkeypatch.setattr(folders, "RESULTS", Path("nowhere"))
    assert options() == in_a_clone, "python experiments/reproduction.py settings brings the package up to date"
    monkeypatch.setattr(folders, "CHOSEN", Path("nowhere"))
    assert options() != in_a_clone
