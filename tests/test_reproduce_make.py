"""Runs that are missing are made, each once, and go on where they were interrupted."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands import made_up  # noqa: F401  (a fixture)
from torch import Tensor

from altmin import methods, models
from altmin.paper.reproduce.figure import Figure
from altmin.paper.reproduce.make import make
from altmin.paper.reproduce.measurement import Setting
from altmin.paper.reproduce.results import Results
from altmin.paper.reproduce.run import Run
from altmin.training import fit

# ruff: noqa: F811

SETTING = Setting(torch.device("cpu"), environment={"torch": "x"})
RUNS = [
    Run("adam", "mlp-1x4", epochs=2, batch_size=20, seeds=2, limit=60, eval_batches=(1, 4)),
    Run("am-adam", "mlp-1x4", options={"lr": 0.01}, batch_size=20, seeds=1, limit=60, freeze_first=True),
]
FIGURE = Figure("fig", "a title", RUNS, ["epochs"], 1)


def test_every_run_is_made_as_declared_and_says_where_it_comes_from(made_up: tuple[Tensor, Tensor]) -> None:
    results = Results([])
    make(FIGURE, results, SETTING, lambda *_: None)
    assert [(row["config"]["method"], row["seed"]) for row in results.rows] == [
        ("adam", 0),
        ("adam", 1),
        ("am-adam", 0),
    ]
    row = results.rows[1]
    assert row["environment"] == {"torch": "x"}
    assert row["rows"] == 60
    assert row["data"].startswith("60 samples, float32")
    torch.manual_seed(1)
    method = methods.create("adam", models.create("mlp-1x4", (1, 28, 28), 10))
    x, y = made_up
    history = fit(method, (x[:60], y[:60]), (x, y), epochs=2, batch_size=20, seed=1, eval_batches=[1, 4])
    assert [point["test_accuracy"] for point in row["epochs"]] == [p["test_accuracy"] for p in history.epochs]
    assert row["batches"] == history.batches


def test_what_is_there_is_not_made_again(made_up: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def tick(done: int, total: int, text: str) -> None:
        if "am-adam" in text:
            raise Stop

    path = tmp_path / "fig.jsonl"
    with pytest.raises(Stop):
        make(FIGURE, Results.read(path), SETTING, tick)
    kept = Results.read(path)
    assert len(kept.rows) == 2, "the first run was kept when it was done"
    shown: list[str] = []
    make(FIGURE, kept, SETTING, lambda done, total, text: shown.append(text))
    assert set(shown) == {"mnist, mlp-1x4, am-adam"}
    assert not [seed for run in RUNS for seed in Results.read(path).missing(run)]


def test_two_curves_of_one_config_are_measured_once(made_up: tuple[Tensor, Tensor]) -> None:
    figure = Figure("fig", "a title", [replace(RUNS[1], at=at, title="both") for at in (1, 2)], ["share"], 1)
    results = Results([])
    make(figure, results, SETTING, lambda *_: None)
    assert len(results.rows) == 1
    assert [x for x, _ in figure.curves(results, "share")[0].points] == [1, 2]


def test_what_cannot_be_made_here_is_named_and_the_rest_is_made(
    made_up: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "lacking", lambda run, setting: "the moon" if run.method == "adam" else "")
    results = Results([])
    left = make(FIGURE, results, SETTING, lambda *_: None)
    assert left == ["mnist, mlp-1x4, adam: the moon"]
    assert [row["config"]["method"] for row in results.rows] == ["am-adam"]
