"""Searches try what they should, on validation samples alone, and go on after an interruption as without it."""

import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
import torch
from commands import made_up  # noqa: F401  (a fixture)
from searches import Trained, peak
from torch import Tensor

from altmin import data
from reproduction.measurement import Setting
from reproduction.run import Run
from reproduction.search import Between, Search, search
from reproduction.settings import History

SETTING = Setting(torch.device("cpu"), environment={"torch": "0"})
RUN = Run("adam", "mlp-1x4", options={"weight_decay": 0.5}, seeds=5)
GRID = Search(RUN, {"lr": [0.1, 0.01, 0.1], "momentum": (0.0, 0.5, 0.9)}, together=4)
BAYES = Search(RUN, {"lr": Between(1e-5, 10.0)}, trials=40, together=8)


def quiet(done: int, total: int, text: str) -> None:
    pass


def made(*searches: Search, path: Path | None = None) -> History:
    history = History([], path)
    search(searches, history, replace(SETTING, loaded={}), quiet)
    return history


def test_a_grid_visits_every_point_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = Trained(peak, monkeypatch)
    history = made(GRID)
    points = [(lr, momentum) for lr in (0.1, 0.01) for momentum in (0.0, 0.5, 0.9)]
    asked = [(options["lr"], options["momentum"]) for call in trained.calls for options, _ in call]
    assert sorted(asked) == sorted(points)
    assert [len(call) for call in trained.calls] == [4, 2]
    assert all(options["weight_decay"] == 0.5 for call in trained.calls for options, _ in call), "it is fixed"
    assert GRID.size == len(points)
    assert [row["trial"] for row in history.rows] == list(range(6))


def test_a_row_says_what_was_tried_and_how(monkeypatch: pytest.MonkeyPatch) -> None:
    Trained(lambda options, seed: options["lr"] + seed, monkeypatch)
    (row,) = made(replace(GRID, space={"lr": [0.25]}, seeds=2)).rows
    assert row == {
        "config": replace(RUN, part="validation").config(),
        "at_batch": None,
        "seeds": [0, 1],
        "trial": 0,
        "options": {"lr": 0.25},
        "accuracy": [0.25, 1.25],
        "diverged": 0,
        "environment": {"torch": "0"},
        "data": "samples",
        "rows": 100,
    }


@pytest.mark.parametrize("rate", [1e-4, 1e-3, 0.3, 3.0])
def test_bayesian_proposals_are_better_than_the_first_random_ones(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accuracy is 1 at one rate and damping, and falls with the square of the distance in decades."""

    def surface(options: Mapping[str, float], seed: int) -> float:
        return math.exp(-(math.log10(options["lr"] / rate) ** 2) - math.log10(options["damping"] / 30) ** 2)

    Trained(surface, monkeypatch)
    rows = made(replace(BAYES, space={"lr": Between(1e-5, 10.0), "damping": Between(1, 1000)})).rows
    assert len(rows) == 40
    assert all(1e-5 <= row["options"]["lr"] <= 10 and 1 <= row["options"]["damping"] <= 1000 for row in rows)
    reached = [row["accuracy"][0] for row in rows]
    assert mean(reached[-20:]) > 1.5 * mean(reached[:8])
    assert max(reached) > max(reached[:8])
    assert max(reached) > math.exp(-(0.4**2)), "it came nearer than 0.4 of 6 and 3 decades"


def test_a_bayesian_search_tries_what_the_run_says_first_and_lists_too(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = Trained(peak, monkeypatch)
    run = replace(RUN, options={"lr": 0.3, "steps": 2, "weight_decay": 0.5})
    history = made(Search(run, {"lr": Between(0.1, 1.0), "steps": [1, 2]}, trials=10, together=5))
    asked = [options for call in trained.calls for options, _ in call]
    assert asked[0] == {"lr": 0.3, "steps": 2, "weight_decay": 0.5}
    assert {options["steps"] for options in asked} == {1, 2}
    assert all(row["config"]["options"] == {"weight_decay": 0.5} for row in history.rows), "what is fixed"
    assert [len(call) for call in trained.calls] == [5, 5]


@pytest.mark.parametrize("each", [GRID, replace(BAYES, trials=20)], ids=["grid", "bayesian"])
def test_an_interrupted_search_goes_on_as_it_would_have(
    each: Search, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trained = Trained(peak, monkeypatch)
    whole = made(each)
    path = tmp_path / "search" / "fig.jsonl"
    trained.calls, trained.stop_after = [], 1
    with pytest.raises(KeyboardInterrupt):
        made(each, path=path)
    assert History.read(path).rows == whole.rows[: each.together]
    trained.stop_after = None
    again = History.read(path)
    search([each], again, SETTING, quiet)
    assert again.rows == History.read(path).rows == whole.rows
    calls = len(trained.calls)
    search([each], again, SETTING, quiet)
    assert len(trained.calls) == calls, "nothing was left to try"


def test_progress_counts_what_is_left_over_all_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    Trained(peak, monkeypatch)
    shown: list[tuple[int, int, str]] = []
    search([GRID, replace(BAYES, trials=2)], History([]), SETTING, lambda *given: shown.append(given))
    text = "mnist, mlp-1x4, adam"
    assert shown == [(2000, 8000, text), (5000, 8000, text), (7000, 8000, text)], "half of 4, of 2 and of 2 tried"


def test_only_what_was_judged_alike_counts_as_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    Trained(peak, monkeypatch)
    history = made(GRID)
    assert len(GRID.tried(history)) == 6
    assert GRID.missing(history) == 0
    others = [
        replace(GRID, run=replace(RUN, epochs=3)),
        replace(GRID, run=replace(RUN, options={"weight_decay": 0.1})),
        replace(GRID, at_batch=50),
        replace(GRID, seeds=2),
        replace(GRID, space={"lr": [0.1]}),
    ]
    assert [len(other.tried(history)) for other in others] == [0] * 5
    wider = replace(GRID, space={"lr": [0.1, 0.3], "momentum": [0.9]})
    assert (len(wider.tried(history)), wider.missing(history)) == (1, 1)


def test_accuracy_is_that_at_the_end_or_after_a_batch_and_0_where_a_run_diverged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = {"lr": [0.5, 0.9, 0.7]}
    Trained(lambda options, seed: math.nan if options["lr"] == 0.9 else options["lr"], monkeypatch)
    at_end, early = Search(RUN, space), Search(RUN, space, at_batch=50)
    assert [row["accuracy"] for row in made(at_end).rows] == [[0.5], [0.0], [0.7]]
    assert [row["diverged"] for row in made(at_end).rows] == [0, 1, 0]
    assert [row["accuracy"] for row in made(early).rows] == [[0.25], [0.0], [0.35]], "halved there"
    best = at_end.best(made(at_end, early))
    assert best is not None
    assert best["options"] == {"lr": 0.7}
    assert at_end.best(History([])) is None
    with pytest.raises(ValueError, match="judged after batch 200, and its run of adam ends before"):
        made(replace(early, at_batch=200))


def test_test_samples_are_never_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()

    def load(name: str, part: str, folder: Path | None) -> tuple[Tensor, Tensor]:
        asked.add(part)
        torch.manual_seed(len(part))
        return torch.randn(40, 1, 28, 28), torch.randint(10, (40,))

    monkeypatch.setattr(data, "load", load)
    each = Search(replace(RUN, part="test", batch_size=20), {"lr": [0.01, 0.1]}, at_batch=1)
    history = History([])
    search([each], history, Setting(torch.device("cpu")), quiet)
    assert asked == {"train", "validation"}
    alone = replace(RUN, part="validation", batch_size=20, eval_batches=(1,), options={"weight_decay": 0.5, "lr": 0.1})
    (row,) = alone.make([0], Setting(torch.device("cpu")), quiet)
    assert history.rows[1]["accuracy"] == [row["batches"][0]["validation_accuracy"]]


def test_without_optuna_a_grid_works_and_a_bayesian_search_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Trained(peak, monkeypatch)
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert len(made(GRID).rows) == 6
    with pytest.raises(ImportError, match=r'a Bayesian search needs optuna, .*: pip install "altmin\[dev\]"'):
        made(BAYES)


@pytest.mark.parametrize("low, high", [(0.0, 1.0), (-1.0, 1.0), (2.0, 1.0), (1.0, math.inf), (math.nan, 1.0)])
def test_a_range_is_of_positive_numbers(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="Between takes 0 < low < high, both finite, given"):
        Between(low, high)


def test_a_search_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="trials of Search must be a whole number of at least 1, given 0"):
        replace(BAYES, trials=0)
    with pytest.raises(ValueError, match=r"at least one option and no empty list, given {'lr': \[\]}"):
        replace(GRID, space={"lr": []})
    with pytest.raises(ValueError, match=r"{'lr': 20.0}, which a search is to try first, is not in its space"):
        replace(BAYES, run=replace(RUN, options={"lr": 20.0}))
