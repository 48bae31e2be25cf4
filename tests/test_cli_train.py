"""`altmin train` writes what `fit` finds with the same settings, for one seed and for several."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import TRAIN, altmin, read, without_seconds  # noqa: F401  (a fixture)
from torch import Tensor

from altmin import __version__, data, methods, models
from altmin.training import accuracy, fit
from altmin.training.trial import Trial

# ruff: noqa: F811


def test_train_writes_what_fit_finds_with_the_same_settings(altmin: Any) -> None:
    arguments = ["--epochs", 2, "--lr", 0.004, "--seed", 3, "--eval-batches", "2,5"]
    assert altmin(*TRAIN, *arguments, "--json", "run.json") == 0
    found = read("run.json")
    x, y = data.load("mnist", "train")
    torch.manual_seed(3)
    method = methods.create("adam", models.create("mlp-1x16", (1, 28, 28), 10), lr=0.004)
    test = data.load("mnist", "test")
    history = fit(method, (x[:220], y[:220]), test, epochs=2, batch_size=50, seed=3, eval_batches=[2, 5])
    assert found["batches"] == history.batches
    expected = [{**row, "seconds": None} for row in history.epochs]
    assert [{**row, "seconds": None} for row in found["epochs"]] == expected
    assert found["epochs"][-1]["test_accuracy"] == accuracy(method.model, test)


def test_the_json_of_train_has_exactly_the_agreed_keys(altmin: Any) -> None:
    assert altmin(*TRAIN, "--eval-batches", "3", "--json", "run.json") == 0
    found = read("run.json")
    assert list(found) == ["data", "model", "method", "seed", "config", "environment", "batches", "epochs"]
    assert [found[key] for key in ("data", "model", "method", "seed")] == ["mnist", "mlp-1x16", "adam", 0]
    assert [list(row) for row in found["batches"]] == [["batch", "test_accuracy"]]
    assert [list(row) for row in found["epochs"]] == [["epoch", "train_loss", "test_accuracy", "seconds"]]
    assert found["config"]["lr"] == 1e-3, "adam's own rate"
    assert found["config"]["train_samples"] == 220
    assert found["environment"]["altmin"] == __version__
    assert found["environment"]["torch"] == torch.__version__
    assert os.sep not in json.dumps(found), "a path has slipped in"


def test_validation_samples_stand_in_for_the_test_samples(altmin: Any) -> None:
    assert altmin(*TRAIN, "--validation", "--eval-batches", "5", "--json", "v.json") == 0
    found = read("v.json")
    assert list(found["epochs"][0]) == ["epoch", "train_loss", "validation_accuracy", "seconds"]
    x, y = data.load("mnist", "train")
    torch.manual_seed(0)
    method = methods.create("adam", models.create("mlp-1x16", (1, 28, 28), 10))
    fit(method, (x[:220], y[:220]), epochs=1, batch_size=50)
    assert found["batches"][0]["validation_accuracy"] == accuracy(method.model, data.load("mnist", "validation"))


def test_an_option_can_be_set_by_name_and_changes_the_run(altmin: Any) -> None:
    sgd = [*TRAIN[:2], "sgd", *TRAIN[3:]]
    for name, more in {"a": [], "b": ["--set", "momentum=0.5"], "c": ["--set", "momentum=0.9"]}.items():
        assert altmin(*sgd, *more, "--json", name) == 0
    a, b, c = (without_seconds(read(name)) for name in "abc")
    assert a["epochs"] == c["epochs"] != b["epochs"], "0.9 is the default"
    assert b["config"]["options"]["momentum"] == 0.5


@pytest.mark.parametrize("method", ["am-adam", "am-mem-offline"])
def test_share_order_and_cuts_reach_the_method(altmin: Any, method: str) -> None:
    """The modules of mlp-2x16 are 0 to 5: Flatten, Linear, ReLU, Linear, ReLU, Linear."""
    line = [*TRAIN[:2], method, *TRAIN[3:], "--model", "mlp-2x16", "--epochs", 2, "--json", "run.json"]
    assert altmin(*line, "--share", 0.2, "--order", "weights-first", "--at", "2") == 0
    found = read("run.json")
    torch.manual_seed(0)
    options = {"share": 0.2, "order": "weights-first", "at": ["2"]}
    by_hand = methods.create(method, models.create("mlp-2x16", (1, 28, 28), 10), **options)
    x, y = data.load("mnist", "train")
    history = fit(by_hand, (x[:220], y[:220]), epochs=2, batch_size=50)
    assert [row["train_loss"] for row in found["epochs"]] == [row["train_loss"] for row in history.epochs]
    assert {name: found["config"]["options"][name] for name in options} == options
    assert altmin(*line) == 0
    assert read("run.json")["epochs"][1]["train_loss"] != found["epochs"][1]["train_loss"]


@pytest.mark.parametrize("method", ["am-adam", "adam"])
def test_a_warm_up_reaches_the_method_and_the_result(altmin: Any, method: str) -> None:
    line = [*TRAIN[:2], method, *TRAIN[3:]]
    assert altmin(*line, "--schedule", "cosine", "--warmup", 2, "--json", "run.json") == 0
    found = read("run.json")
    torch.manual_seed(0)
    by_hand = methods.create(method, models.create("mlp-1x16", (1, 28, 28), 10))
    x, y = data.load("mnist", "train")
    history = fit(by_hand, (x[:220], y[:220]), epochs=1, batch_size=50, schedule="cosine", warmup=2)
    assert found["epochs"][0]["train_loss"] == history.epochs[0]["train_loss"]
    assert found["config"]["warmup"] == 2


def test_another_option_is_named_when_a_run_is_to_go_on(altmin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["train", "--model", "mlp-1x16", "--limit", 60, "--checkpoint", "run"]
    assert altmin(*line) == 0
    assert altmin(*line, "--resume", "--order", "weights-first") == 2
    assert "its order is None, here it is weights-first" in capsys.readouterr().err


def test_a_resumed_command_gives_the_result_of_an_uninterrupted_one(
    altmin: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*TRAIN, "--epochs", 2, "--checkpoint-every", 2, "--checkpoint"]
    assert altmin(*command, "whole", "--json", "whole.json") == 0
    steps, step = [], methods.backprop.Backprop.step

    def interrupted(self: Any, x: Tensor, y: Tensor) -> Any:
        steps.append(1)
        if len(steps) == 8:
            raise KeyboardInterrupt
        return step(self, x, y)

    with monkeypatch.context() as patch:
        patch.setattr(methods.backprop.Backprop, "step", interrupted)
        assert altmin(*command, "run", "--json", "run.json") == 130
    error = capsys.readouterr().err
    assert re.fullmatch(r"altmin: stopped in epoch 2, batch 3 of 5; .* checkpoint is run \(.*--resume.*\)\n", error)
    assert not Path("run.json").exists()
    assert altmin(*command, "run", "--json", "run.json", "--resume") == 0
    assert without_seconds(read("run.json")) == without_seconds(read("whole.json"))


def test_a_run_that_diverges_ends_with_1_and_keeps_the_last_good_checkpoint(
    altmin: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    sgd = [*TRAIN[:2], "sgd", *TRAIN[3:], "--epochs", 3, "--lr", 1e30, "--checkpoint", "run", "--json", "run.json"]
    assert altmin(*sgd) == 1
    error = capsys.readouterr().err
    assert re.fullmatch(r"altmin: training diverged: .* in epoch 1, batch \d of 5 .* checkpoint is run\n", error)
    assert os.listdir() == ["run"]


def test_a_run_whose_loss_explodes_ends_with_1_though_it_stays_finite(
    altmin: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert altmin(*TRAIN, "--epochs", 3, "--lr", 30, "--checkpoint", "run", "--json", "run.json") == 1
    words = (
        r"altmin: training diverged: the loss in epoch 1, batch \d of 5 exploded to [\d.e+]+; lower the learning rate"
    )
    assert re.fullmatch(rf"{words}, 30; the last checkpoint is run\n", capsys.readouterr().err)
    assert os.listdir() == ["run"]


def trained(altmin: Any, *arguments: str) -> dict[str, Any]:
    assert altmin("train", "--model", "binary-16", *arguments, "--json", "run.json") == 0
    return read("run.json")


def test_the_command_line_picks_a_solver_and_freezes_the_first_layer(altmin: Any) -> None:
    default, discrete, through, frozen = (
        trained(altmin, *arguments)
        for arguments in ([], ["--codes", "discrete"], ["--codes", "straight-through"], ["--freeze-first"])
    )
    losses = [found["epochs"][0]["train_loss"] for found in (default, discrete, through, frozen)]
    assert losses[0] == losses[1]
    assert len(set(losses)) == 3
    assert through["config"]["options"]["codes"] == "straight-through"
    assert [found["config"]["freeze_first"] for found in (default, frozen)] == [False, True]
    by_backprop = trained(altmin, "--method", "adam", "--freeze-first")  # nothing is to be differentiated below sign
    assert by_backprop["epochs"][0]["train_loss"] < 2.4


SEEDS = ["train", "--model", "mlp-1x16", "--batch-size", "50", "--limit", "220", "--epochs", "2", "--eval-batches", "3"]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("method", ["am-adam", "adam", "am-adam-offline"])
def test_several_seeds_are_the_runs_that_train_gives_one_by_one(
    altmin: Any, method: str, together: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after the other, as on a CPU, or together, as on a GPU; a method that cannot be is run in turn there too."""
    monkeypatch.setattr(Trial, "together", together)
    command = [*SEEDS, "--method", method]
    assert altmin(*command, "--seed", 4, "--seeds", 2, "--json", "both.json") == 0
    said = capsys.readouterr().out.splitlines()
    both = read("both.json")
    assert both["seeds"] == [run["seed"] for run in both["runs"]] == [4, 5]
    finals = []
    for found in both["runs"]:
        assert list(found) == ["seed", "batches", "epochs"]
        assert altmin(*command, "--seed", found["seed"], "--json", "one.json") == 0
        expected = read("one.json")
        assert set(both) - set(expected) == {"seeds", "runs"}
        assert both["config"] == expected["config"]
        exact = method == "am-adam-offline" or not together
        for a, b in zip(found["epochs"], expected["epochs"], strict=True):
            assert list(a) == list(b)
            assert a["train_loss"] == pytest.approx(b["train_loss"], abs=0 if exact else 1e-4)
            assert a["test_accuracy"] == pytest.approx(b["test_accuracy"], abs=0 if exact else 0.01)
        assert [row["batch"] for row in found["batches"]] == [3]
        finals.append(expected["epochs"][-1]["test_accuracy"])
        line = next(line for line in said if f"seed {found['seed']}:" in line)
        assert f"test accuracy {found['epochs'][-1]['test_accuracy']:.4f}" in line
    first, second = (run["epochs"][-1]["test_accuracy"] for run in both["runs"])
    spread = abs(first - second) / 2**0.5
    assert f"{method}, mlp-1x16, mnist, 2 seeds: test accuracy {(first + second) / 2:.4f} ± {spread:.4f}" in said[2]
    assert both["epochs"] == both["runs"][0]["epochs"], "what one run would write is that of the first seed"


@pytest.mark.parametrize("together", [False, True])
def test_seeds_that_diverge_are_named_and_the_result_is_written(
    altmin: Any, together: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Trial, "together", together)
    line = [*SEEDS, "--method", "sgd", "--lr", 1e30, "--seeds", 2, "--json", "run.json"]
    assert altmin(*line) == 1
    error = capsys.readouterr().err
    assert re.fullmatch(r"altmin:\n  seed 0: training diverged: .*\n  seed 1: training diverged: .*\n", error)
    assert [list(found) for found in read("run.json")["runs"]] == [["seed", "batches", "epochs", "diverged"]] * 2


def test_one_seed_is_as_ever_and_checkpoints_are_for_one_run(altmin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert altmin(*SEEDS, "--method", "adam", "--seeds", 1, "--checkpoint", "kept", "--json", "one.json") == 0
    assert list(read("one.json"))[-2:] == ["batches", "epochs"]
    assert altmin(*SEEDS, "--method", "adam", "--seeds", 2, "--checkpoint", "kept") == 2
    assert "--checkpoint keeps one run, given --seeds 2" in capsys.readouterr().err
    assert altmin(*SEEDS, "--method", "adam", "--seeds", 2, "--checkpoint-every", 2) == 2
    assert "--checkpoint-every needs --checkpoint FILE" in capsys.readouterr().err


def test_recording_backprop_without_a_gpu_is_refused_with_the_remedy(
    altmin: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert altmin(*SEEDS, "--method", "adam", "--record") == 2
    assert "the model is on a CPU; steps of AltMin and of ensembles are recorded there" in capsys.readouterr().err
