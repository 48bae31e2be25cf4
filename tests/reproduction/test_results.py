"""Results are stored by config and seed, and a training run is what it says it is."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from altmin import methods, models
from altmin.training import fit
from reproduction import Figure, Results, Row, Run, Setting
from reproduction.figure import make

pytest_plugins = ["figure_cases"]

RUN = Run("adam", "mlp-1x4", epochs=2, seeds=2, eval_batches=(3,))


def row(seed: int, first: float, last: float, run: Run = RUN) -> Row:
    epochs = [{"epoch": n, "train_loss": 1.0, "test_accuracy": a} for n, a in ((1, first), (2, last))]
    batches = [{"batch": 3, "test_accuracy": first / 2}]
    return {"config": run.config(), "seed": seed, "batches": batches, "epochs": epochs}


def test_values_are_those_of_every_seed_at_one_place() -> None:
    results = Results([row(1, 0.6, 0.8), row(0, 0.5, 0.7), row(0, 0.1, 0.1, Run("sgd", "mlp-1x4"))])
    assert results.values(RUN, epoch=1) == [0.5, 0.6]
    assert results.values(RUN, epoch=-1) == [0.7, 0.8]
    assert results.values(RUN, batch=3) == [0.25, 0.3]


def test_a_seed_that_diverged_counts_as_zero_and_one_that_was_not_made_is_an_error() -> None:
    results = Results([row(0, 0.5, 0.7), {**row(1, 0.5, 0.6), "epochs": [], "diverged": "the loss"}])
    assert results.values(RUN, epoch=-1) == [0.7, 0.0]
    assert results.missing(replace(RUN, seeds=3)) == [2]
    with pytest.raises(KeyError):
        results.values(replace(RUN, seeds=3), epoch=1)


def test_two_that_add_to_one_file_keep_the_rows_of_both_and_a_seed_made_twice_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "deep/fig.jsonl"
    one, other = Results.read(path), Results.read(path)
    one.add([row(0, 0.5, 0.7)])
    other.add([row(0, 0.1, 0.1)])  # made at the same time
    other.add([row(1, 0.6, 0.8)])
    one.add([row(2, 0.9, 0.9)])
    assert one.rows == Results.read(path).rows
    assert [each["seed"] for each in one.rows] == [0, 0, 1, 2]
    assert one.values(RUN, epoch=-1) == [0.7, 0.8]
    path.write_text(path.read_text() + "{broken\n")
    with pytest.raises(ValueError, match="line 5"):
        Results.read(path)


MADE = {
    "seed": 0,
    "rows": 450,
    "batches": [{"batch": 1, "test_accuracy": 0.1}, {"batch": 4, "test_accuracy": 0.4}],
    "epochs": [
        {"epoch": 1, "train_loss": 1.0, "test_accuracy": 0.3, "seconds": 2.0},
        {"epoch": 2, "train_loss": 1.0, "test_accuracy": 0.6, "seconds": 3.0},
    ],
}


def test_a_config_is_what_json_gives_back_and_has_nothing_of_the_picture() -> None:
    run = Run("adam", "mlp-1x4", options={"lr": 0.1}, eval_batches=(1, 2), seeds=3, label="mine", title="panel", at=2)
    assert json.loads(json.dumps(run.config())) == run.config()
    assert run.config() == Run("adam", "mlp-1x4", options={"lr": 0.1}, eval_batches=(1, 2)).config()
    for other in ({"options": {"lr": 0.2}}, {"part": "validation"}, {"augment": "crop-flip"}, {"warmup": 2}):
        assert run.config() != replace(run, **other).config()


def test_points_are_the_evaluations_counted_in_batches_epochs_seconds_or_at_a_place_of_the_figures_own() -> None:
    run = Run("adam", "mlp-1x4", batch_size=200, epochs=2)  # three batches an epoch, the last of 50 samples
    assert run.points(MADE, "batches") == [(1, 0.1), (3, 0.3), (4, 0.4), (6, 0.6)]
    assert run.points(MADE, "epochs") == [(1 / 3, 0.1), (1, 0.3), (4 / 3, 0.4), (2, 0.6)]
    assert run.points(MADE, "seconds") == [(2.0, 0.3), (5.0, 0.6)]
    assert replace(run, at=16).points(MADE, "layers") == [(16, 0.6)]
    assert run.points(MADE, "layers") == replace(run, at=16).points({**MADE, "epochs": []}, "layers") == []


RUNS = [
    Run("adam", "mlp-1x4", epochs=2, batch_size=20, seeds=2, limit=60, eval_batches=(1, 4)),
    Run("am-adam", "mlp-1x4", options={"lr": 0.01}, batch_size=20, seeds=1, limit=60, freeze_first=True),
]
FIGURE = Figure("fig", "a title", RUNS, ["epochs"], 1)


def test_every_run_is_made_as_declared_and_says_where_it_comes_from(
    made_up: tuple[Tensor, Tensor], setting: Setting, quiet: Any
) -> None:
    results = Results([])
    make(FIGURE, results, setting, quiet)
    assert [(each["config"]["method"], each["seed"]) for each in results.rows] == [
        *(("adam", 0), ("adam", 1)),
        ("am-adam", 0),
    ]
    made = results.rows[1]
    assert (made["environment"], made["rows"]) == ({"torch": "x"}, 60)
    assert made["data"].startswith("60 samples, float32")
    torch.manual_seed(1)
    method = methods.create("adam", models.create("mlp-1x4", (1, 28, 28), 10))
    x, y = made_up
    settings = {"epochs": 2, "batch_size": 20, "seed": 1, "eval_batches": [1, 4], "schedule": "constant"}
    history = fit(method, (x[:60], y[:60]), (x, y), **settings)
    assert [point["test_accuracy"] for point in made["epochs"]] == [p["test_accuracy"] for p in history.epochs]
    assert made["batches"] == history.batches


def test_what_is_there_is_not_made_again(
    made_up: tuple[Tensor, Tensor], tmp_path: Path, setting: Setting, quiet: Any
) -> None:
    def stop(done: int, total: int, text: str) -> None:
        if "am-adam" in text:
            raise KeyboardInterrupt

    path = tmp_path / "fig.jsonl"
    with pytest.raises(KeyboardInterrupt):
        make(FIGURE, Results.read(path), setting, stop)
    rows, shown = Results.read(path), list[str]()
    assert len(rows.rows) == 2, "the first run was stored when it was done"
    make(FIGURE, rows, setting, lambda done, total, text: shown.append(text))
    assert set(shown) == {"mnist, mlp-1x4, am-adam"}
    assert not [seed for run in RUNS for seed in Results.read(path).missing(run)]
