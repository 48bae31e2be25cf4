"""`altmin train` writes what `fit` returns with the same settings, for one seed and for several."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import TRAIN, altmin, read, without_seconds  # noqa: F401  (a fixture)
from torch import Tensor

from altmin import __version__, data, methods, models
from altmin.core.trainer import AltMin
from altmin.training import accuracy, fit

# ruff: noqa: F811

OPTIONS: dict[str, tuple[list[Any], dict[str, Any], dict[str, Any]]] = {
    "backprop": (["--method", "adam", "--lr", 0.004], {"lr": 0.004}, {}),
    "warmup": (
        ["--method", "adam", "--schedule", "cosine", "--warmup", 2],
        {},
        {"schedule": "cosine", "warmup": 2},
    ),
    "rounded": (["--precision", "bf16"], {}, {"precision": "bf16"}),
    "share, order, cuts": (
        ["--model", "mlp-2x16", "--set", "share=0.2", "--set", "order=weights-first", "--set", "at=['2']"],
        {"share": 0.2, "order": "weights-first", "at": ["2"]},
        {},
    ),
    "offline": (["--method", "am-mem-offline"], {}, {}),
    "text": (["--model", "gpt-1x16", "--data", "shakespeare"], {}, {"augment": "random-windows"}),
    "text as it is": (["--model", "gpt-1x16", "--data", "shakespeare", "--augment", "none"], {}, {}),
    "images": (["--model", "resnet18-2", "--augment", "crop-flip"], {}, {"augment": "crop-flip"}),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_train_writes_what_fit_returns_with_the_same_settings(altmin: Any, name: str) -> None:
    arguments, options, settings = OPTIONS[name]
    line = ["train", "--model", "mlp-1x16", "--batch-size", 50, "--limit", 120, "--epochs", 2, "--seed", 3]
    assert altmin(*line, *arguments, "--eval-batches", "2,5", "--json", "run.json") == 0
    found = read("run.json")
    known, (x, y) = data.dataset(found["data"]), data.load(found["data"], "train")
    test = data.load(found["data"], "test")
    torch.manual_seed(3)
    model = models.create(found["model"], known.sample_shape, known.classes, known.tokens)
    method, same = methods.create(found["method"], model, **options), {"epochs": 2, "batch_size": 50, "seed": 3}
    history = fit(method, (x[:120], y[:120]), test, eval_batches=[2, 5], **same, **{"precision": "float32", **settings})
    assert found["batches"] == history.batches
    assert [{**row, "seconds": 0} for row in found["epochs"]] == [{**row, "seconds": 0} for row in history.epochs]
    assert found["epochs"][-1]["test_accuracy"] == accuracy(method.model, test)
    config = {**found["config"], **found["config"]["options"]}
    assert {key: config[key] for key in (*options, *settings)} == {**options, **settings}


def test_the_json_of_train_has_exactly_the_agreed_keys(altmin: Any) -> None:
    assert altmin(*TRAIN, "--eval-batches", "3", "--validation", "--json", "run.json") == 0
    found = read("run.json")
    assert list(found) == ["data", "model", "method", "seed", "config", "environment", "batches", "epochs"]
    assert [found[key] for key in ("data", "model", "method", "seed")] == ["mnist", "mlp-1x16", "adam", 0]
    assert [list(row) for row in found["batches"]] == [["batch", "validation_accuracy"]]
    assert [list(row) for row in found["epochs"]] == [["epoch", "train_loss", "validation_accuracy", "seconds"]]
    assert found["config"]["lr"] == 1e-3, "adam's own rate"
    assert found["config"]["train_samples"] == 220
    assert found["environment"]["altmin"] == __version__
    assert found["environment"]["torch"] == torch.__version__
    assert os.sep not in json.dumps(found), "a path has slipped in"


def test_a_resumed_command_gives_the_result_of_an_uninterrupted_one(
    altmin: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped by Ctrl-C in the second epoch; a text is read in random windows."""
    line = ["train", "--model", "gpt-1x16", "--data", "shakespeare", "--batch-size", 20, "--limit", 60, "--epochs", 2]
    command = [*line, "--checkpoint-every", 1, "--checkpoint"]
    assert altmin(*command, "whole", "--json", "whole.json") == 0
    steps, step = [], AltMin.step

    def interrupted(self: Any, x: Tensor, y: Tensor) -> Any:
        steps.append(1)
        if len(steps) == 5:
            raise KeyboardInterrupt
        return step(self, x, y)

    with monkeypatch.context() as patch:
        patch.setattr(AltMin, "step", interrupted)
        assert altmin(*command, "run", "--json", "run.json") == 130
    error = capsys.readouterr().err
    assert "epoch 2" in error
    assert "--resume" in error
    assert not Path("run.json").exists()
    assert altmin(*command, "run", "--resume", "--set", "share=0.5") == 2, "it would be another run"
    assert altmin(*command, "run", "--resume", "--precision", "bf16") == 2
    assert altmin(*command, "run", "--json", "run.json", "--resume") == 0
    assert without_seconds(read("run.json")) == without_seconds(read("whole.json"))


@pytest.mark.parametrize("rate, word", [(1e30, "not finite"), (30, "exploded")])
def test_a_run_that_diverges_ends_with_1_and_names_the_last_good_checkpoint(
    altmin: Any, rate: float, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["train", "--method", "sgd" if rate > 100 else "adam", *TRAIN[3:], "--epochs", 3, "--lr", rate]
    assert altmin(*line, "--checkpoint", "run", "--json", "run.json") == 1
    error = capsys.readouterr().err
    assert error.startswith("altmin: training diverged")
    assert word in error
    assert error.endswith("checkpoint is run\n")
    assert os.listdir() == ["run"]


def test_codes_and_the_first_layer_can_be_chosen_for_a_binary_net(altmin: Any) -> None:
    losses = []
    for more in ([], ["--set", "codes=discrete"], ["--set", "codes=straight-through"], ["--freeze-first"]):
        assert altmin("train", "--model", "binary-16", *more, "--json", "run.json") == 0
        losses.append(read("run.json")["epochs"][0]["train_loss"])
    assert losses[1] == losses[0]
    assert len(set(losses)) == 3
