"""Runs that are missing are made, each once, and go on where they were interrupted."""

from pathlib import Path

import pytest
import torch
from commands import made_up  # noqa: F401  (a fixture)
from torch import Tensor

from altmin import methods, models
from altmin.fit import fit
from altmin.reproduce.figure import Figure, Run
from altmin.reproduce.make import make
from altmin.reproduce.results import Results

# ruff: noqa: F811

CPU = torch.device("cpu")
RUNS = [
    Run("adam", "mlp-1x4", epochs=2, batch_size=20, seeds=2, limit=60, eval_batches=(1, 4)),
    Run("am-adam", "mlp-1x4", options={"lr": 0.01}, batch_size=20, seeds=1, limit=60, freeze_first=True),
]
FIGURE = Figure("fig", "a title", RUNS, "epochs", 1)


def test_every_run_is_made_as_declared_and_says_where_it_comes_from(made_up: tuple[Tensor, Tensor]) -> None:
    results = Results([])
    make(FIGURE, results, CPU, {"torch": "x"}, None, lambda *_: None)
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
        make(FIGURE, Results.read(path), CPU, {}, None, tick)
    kept = Results.read(path)
    assert len(kept.rows) == 2, "the first run was kept when it was done"
    shown: list[str] = []
    make(FIGURE, kept, CPU, {}, None, lambda done, total, text: shown.append(text))
    assert set(shown) == {"mnist, mlp-1x4, am-adam"}
    assert not [seed for run in RUNS for seed in Results.read(path).missing(run)]
