"""Searches try what they should, on validation samples alone, and go on after an interruption as without it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from altmin import data
from reproduction import Between, Entry, Results, Run, Search, Setting, runs_of
from reproduction.search import history, search

pytest_plugins = ["figure_cases"]

SETTING = Setting(torch.device("cpu"), environment={"torch": "0"})
RUN = Run("adam", "mlp-1x4", options={"weight_decay": 0.5}, seeds=5)
GRID = Search(RUN, {"lr": [0.1, 0.01], "momentum": (0.0, 0.5, 0.9)}, together=4)
BAYES = Search(RUN, {"lr": Between(1e-5, 10.0)}, trials=40, together=8)
Surface = Callable[[Mapping[str, Any], int], float]


def peak(options: Mapping[str, Any], seed: int = 0) -> float:
    """1 at lr = 0.02, falling with the square of the distance in decades."""
    return math.exp(-(math.log10(options["lr"] / 0.02) ** 2))


class Trained:
    """Stands for `Run.make_all`: accuracy is a known function of the options. It notes what it was asked."""

    def __init__(self, surface: Surface, monkeypatch: pytest.MonkeyPatch):
        self.surface, self.calls, self.stop_after = surface, list[list[dict[str, Any]]](), math.inf
        monkeypatch.setattr(Run, "make_all", lambda *given: self(*given))

    def __call__(self, run: Run, jobs: Sequence[tuple[Mapping[str, Any], int]], setting: Any, tick: Any) -> list[Any]:
        if len(self.calls) >= self.stop_after:
            raise KeyboardInterrupt
        self.calls.append([dict(options) for options, _ in jobs])
        tick(1, 2, "under way")
        return [self._row(run, self.surface(options, seed), seed) for options, seed in jobs]

    @staticmethod
    def _row(run: Run, value: float, seed: int) -> dict[str, Any]:
        """NaN stands for a run that diverged after it was evaluated for the first time."""
        points = [{"batch": n, "validation_accuracy": value / 2} for n in run.eval_batches]
        row = {"seed": seed, "batches": points, "data": "samples", "rows": 100}
        ends = [{"epoch": 1, "validation_accuracy": value}]
        return {**row, "epochs": [], "diverged": "the loss"} if math.isnan(value) else {**row, "epochs": ends}


def made(*searches: Search, path: Path | None = None) -> Results:
    results = Results([], path)
    search(searches, results, replace(SETTING, loaded={}), lambda *_: None)
    return results


def test_a_grid_visits_every_point_once_and_a_row_says_what_was_tried_and_how(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = Trained(lambda options, seed: options["lr"] + seed, monkeypatch)
    results = made(replace(GRID, seeds=2, together=3))
    points = [(lr, momentum) for lr in (0.1, 0.01) for momentum in (0.0, 0.5, 0.9)]
    assert [(row["options"]["lr"], row["options"]["momentum"]) for row in results.rows] == points
    assert [len(call) for call in trained.calls] == [6, 6], "three configurations of two seeds at once"
    assert all(options["weight_decay"] == 0.5 for call in trained.calls for options in call), "it is fixed"
    assert results.rows[1] == {
        **{"config": replace(RUN, part="validation").config(), "at_batch": None, "seeds": [0, 1], "trial": 1},
        **{"options": {"lr": 0.1, "momentum": 0.5}, "accuracy": [0.1, 1.1], "diverged": 0},
        **{"environment": {"torch": "0"}, "data": "samples", "rows": 100},
    }


@pytest.mark.parametrize("each", [GRID, replace(BAYES, trials=16)], ids=["grid", "bayesian"])
def test_an_interrupted_search_goes_on_as_it_would_have(
    each: Search, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trained, path = Trained(peak, monkeypatch), tmp_path / "search/fig.jsonl"
    whole = made(each)
    trained.calls, trained.stop_after = [], 1
    with pytest.raises(KeyboardInterrupt):
        made(each, path=path)
    assert Results.read(path).rows == whole.rows[: each.together]
    trained.stop_after = math.inf
    again = Results.read(path)
    for _ in range(2):  # the second time there is nothing left to try
        search([each], again, SETTING, lambda *_: None)
    assert again.rows == Results.read(path).rows == whole.rows


def test_test_samples_are_never_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()

    def load(name: str, part: str, folder: Path | None) -> tuple[Tensor, Tensor]:
        asked.add(part)
        torch.manual_seed(len(part))
        return torch.randn(40, 1, 28, 28), torch.randint(10, (40,))

    monkeypatch.setattr(data, "load", load)
    results = made(Search(replace(RUN, batch_size=20), {"lr": [0.01, 0.1]}, at_batch=1))
    assert asked == {"train", "validation"}
    alone = replace(RUN, part="validation", batch_size=20, eval_batches=(1,), options={"weight_decay": 0.5, "lr": 0.1})
    (row,) = alone.make([0], SETTING, lambda *_: None)
    assert results.rows[1]["accuracy"] == [row["batches"][0]["validation_accuracy"]]


SPACE = {"lr": Between(0.01, 1.0)}
ENTRIES = [
    Entry(
        "sgd", {"lr": 0.1, "momentum": 0.0}, SPACE, search={"trials": 3, "run": {"epochs": 2}}, paper={"mlp-1x4": 0.2}
    ),
    Entry("admm", run={"batch_size": 500, "label": "ADMM", "epochs": 3}),
]


def test_every_entry_runs_on_every_net_with_the_options_that_its_search_has_found(folder: Path) -> None:
    runs, searches = runs_of("fig9", ENTRIES, ["mlp-1x4", "mlp-2x4"], epochs=7)
    assert [run.epochs for run in runs.values()] == [7, 3, 7, 3], "its own come before what is common"
    assert (runs["mlp-1x4", "ADMM"].batch_size, runs["mlp-1x4", "sgd"].batch_size) == (500, 200)
    assert runs["mlp-1x4", "sgd"].options == {"lr": 0.1, "momentum": 0.0}
    assert [(each.run.model, each.run.epochs, each.trials, each.paper) for each in searches] == [
        *(("mlp-1x4", 2, 3, {"lr": 0.2}), ("mlp-2x4", 2, 3, {})),
    ]
    same = {**searches[0].identity(), "seed": 0}
    found = [(0.3, 0.8), (0.4, 0.9), (0.5, 0.9)]
    rows = [{**same, "trial": n, "options": {"lr": lr}, "accuracy": [a]} for n, (lr, a) in enumerate(found)]
    older = {**rows[0], "seeds": [0, 1], "accuracy": [1.0, 1.0]}
    Results([], history("fig9")).add([older, *rows])
    runs, searches = runs_of("fig9", ENTRIES, ["mlp-1x4"], epochs=7)
    assert runs["mlp-1x4", "sgd"].options == {"lr": 0.4, "momentum": 0.0}, "the first of the best, judged as the last"
    assert len(searches[0].tried(Results.read(history("fig9")))) == 3, "the search is the same, whatever it has found"
    assert searches[0].start == {"lr": 0.1}
