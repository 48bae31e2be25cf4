"""A training run: what tells it from others, its reduced version, and its points on every axis."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from commands import made_up  # noqa: F401  (a fixture)
from torch import Tensor, device

from altmin import data, methods, models
from altmin.training import fit
from reproduction.results import Setting
from reproduction.run import Run

# ruff: noqa: F811

ROW = {
    "seed": 0,
    "rows": 450,
    "batches": [{"batch": 1, "test_accuracy": 0.1}, {"batch": 4, "test_accuracy": 0.4}],
    "epochs": [
        {"epoch": 1, "train_loss": 1.0, "test_accuracy": 0.3, "seconds": 2.0},
        {"epoch": 2, "train_loss": 1.0, "test_accuracy": 0.6, "seconds": 3.0},
    ],
}


def test_a_config_is_what_json_gives_back_and_knows_nothing_of_the_picture() -> None:
    run = Run("adam", "mlp-1x4", options={"lr": 0.1}, eval_batches=(1, 2), seeds=3, label="mine", title="panel", at=2)
    assert json.loads(json.dumps(run.config())) == run.config()
    assert run.config() == Run("adam", "mlp-1x4", options={"lr": 0.1}, eval_batches=(1, 2)).config()
    assert run.config() != Run("adam", "mlp-1x4", options={"lr": 0.2}, eval_batches=(1, 2)).config()
    assert run.config() != replace(run, part="validation").config()
    assert (run.name, Run("adam", "mlp-1x4").name) == ("mine", "adam")
    assert (run.panel, Run("adam", "mlp-1x4").panel) == ("panel", "mnist, mlp-1x4")


def test_a_reduced_run_has_one_seed_and_evaluates_where_it_still_comes_to() -> None:
    run = Run("adam", "mlp-1x4", epochs=50, batch_size=1000, eval_batches=(1, 20, 21))
    small = run.reduced()
    assert (small.seeds, small.epochs, small.limit) == (1, 2, 10_000)
    assert small.eval_batches == (1, 20), "two epochs of ten batches"
    assert Run("adam", "mlp-1x4", limit=500).reduced().limit == 500
    assert (run.reduced(2_000).limit, run.reduced(2_000).eval_batches) == (2_000, (1,))


def test_points_are_the_evaluations_counted_in_batches_epochs_or_seconds() -> None:
    run = Run("adam", "mlp-1x4", batch_size=200, epochs=2)  # three batches an epoch, the last of 50 samples
    assert run.points(ROW, "batches") == [(1, 0.1), (3, 0.3), (4, 0.4), (6, 0.6)]
    assert run.points(ROW, "epochs") == [(1 / 3, 0.1), (1, 0.3), (4 / 3, 0.4), (2, 0.6)]
    assert run.points(ROW, "seconds") == [(2.0, 0.3), (5.0, 0.6)]


def test_on_an_axis_of_the_figures_own_a_run_is_one_point() -> None:
    assert Run("adam", "mlp-1x4", at=16).points(ROW, "layers") == [(16, 0.6)]
    assert Run("adam", "mlp-1x4").points(ROW, "layers") == []
    assert Run("adam", "mlp-1x4", at=16).points({**ROW, "epochs": []}, "layers") == [], "it diverged in epoch 1"


def test_options_that_differ_are_made_in_their_order(made_up: tuple[Tensor, Tensor]) -> None:
    run = Run("adam", "mlp-1x4", batch_size=20, limit=60, options={"lr": 7.0}, part="validation")
    setting = Setting(device("cpu"))
    jobs = [({"lr": 0.01}, 0), ({"lr": 0.1}, 0), ({"lr": 0.01}, 1)]
    both = run.make_all(jobs, setting, lambda *_: None)
    alone = [replace(run, options=options).make([seed], setting, lambda *_: None)[0] for options, seed in jobs]
    for one, other in zip(both, alone, strict=True):
        assert one["epochs"][0]["validation_accuracy"] == other["epochs"][0]["validation_accuracy"]
        assert one["epochs"][0]["train_loss"] == other["epochs"][0]["train_loss"]
    assert both[0]["epochs"][0]["train_loss"] != both[1]["epochs"][0]["train_loss"]


def test_a_run_on_the_whole_data_is_not_made_from_a_part_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(device("cpu"))
    monkeypatch.setattr(data, "describe", lambda name, folder: SimpleNamespace(state="partial"))
    assert Run("adam", "mlp-1x4", "higgs", whole=True).lacking(setting) == "the file of higgs is a partial one"
    assert Run("adam", "mlp-1x4", "higgs").lacking(setting) == ""
    monkeypatch.setattr(data, "describe", lambda name, folder: SimpleNamespace(state="found"))
    assert Run("adam", "mlp-1x4", "higgs", whole=True).lacking(setting) == ""


def test_a_run_has_an_augmentation_and_a_warm_up_of_which_older_results_know_nothing(
    made_up: tuple[Tensor, Tensor],
) -> None:
    plain = Run("adam", "mlp-1x4", batch_size=50, schedule="cosine")
    assert not {"augment", "warmup"} & set(plain.config())
    run = replace(plain, augment="crop-flip", warmup=2)
    assert {name: run.config()[name] for name in ("augment", "warmup")} == {"augment": "crop-flip", "warmup": 2}
    setting = Setting(device("cpu"))
    (row,) = run.make([0], setting, lambda *_: None)
    torch.manual_seed(0)
    method = methods.create("adam", models.create("mlp-1x4", (1, 28, 28), 10))
    history = fit(method, made_up, epochs=1, batch_size=50, schedule="cosine", augment="crop-flip", warmup=2)
    assert row["epochs"][0]["train_loss"] == history.epochs[0]["train_loss"]
