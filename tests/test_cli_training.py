"""Runs as the commands start them: the same in turn and as an ensemble, in the precision that was asked for."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import altmin, made_up, read  # noqa: F401  (fixtures)
from torch import Tensor

from altmin import data, methods, models
from altmin.calculus.context import LOCAL
from altmin.cli import run
from altmin.core.trainer import AltMin
from altmin.data import crop_flip
from altmin.methods.backprop import Backprop
from altmin.runners.ensemble import Ensemble
from altmin.runners.precision import NAMES, available, check, using
from altmin.training import epoch_order, fit
from altmin.training.samples import batch_generator
from altmin.training.trial import Trial

# ruff: noqa: F811


def test_an_unknown_precision_is_refused_with_the_nearest_name() -> None:
    for refuse in (lambda: using("bf61").__enter__(), lambda: check("bf61", torch.device("cpu"))):
        with pytest.raises(
            ValueError, match=r"unknown precision 'bf61'; did you mean 'bf16'\? The choices are: bf16, f"
        ):
            refuse()


def test_tf32_is_refused_where_it_would_change_nothing() -> None:
    with pytest.raises(
        ValueError, match=r"precision 'tf32' is of GPUs only.*use --device cuda, or --precision float32"
    ):
        check("tf32", torch.device("cpu"))
    assert available(torch.device("cpu")) == ("float32", "bf16")
    assert available(torch.device("cuda")) == NAMES
    check("tf32", torch.device("cuda"))


@pytest.mark.parametrize("method", ["am-adam", "adam"])
def test_train_and_compare_use_and_record_the_precision(method: str, made_up: tuple[Tensor, Tensor]) -> None:
    rest = ["--model", "mlp-1x16", "--batch-size", "50", "--epochs", "1", "--json"]
    losses = {}
    for name in ("float32", "bf16"):
        assert run(["train", "--method", method, "--precision", name, *rest, f"{name}.json"]) == 0
        assert run(["compare", "--methods", method, "--precision", name, *rest, "c.json"]) == 0
        trained, compared = (json.loads(Path(file).read_text()) for file in (f"{name}.json", "c.json"))
        torch.manual_seed(0)
        learner = methods.create(method, models.create("mlp-1x16", (1, 28, 28), 10))
        history = fit(learner, made_up, epochs=1, batch_size=50, precision=name)
        losses[name] = history.epochs[-1]["train_loss"]
        assert trained["epochs"][-1]["train_loss"] == compared["runs"][0]["epochs"][-1]["train_loss"] == losses[name]
        assert trained["config"]["precision"] == compared["config"]["precision"] == name
    assert losses["float32"] != losses["bf16"]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("method", ["am-adam", "adam"])
def test_several_seeds_have_the_precision_of_one(
    method: str, together: bool, made_up: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, as on a CPU, or together, as on a GPU."""
    monkeypatch.setattr(Trial, "together", together)
    seen: list[bool] = []

    def watched(step: Any) -> Any:
        @functools.wraps(step)
        def watch(self: Any, *given: Any, **how: Any) -> Any:
            seen.append(how.get("context", LOCAL).bf16)
            return step(self, *given, **how)

        return watch

    for kind in (Ensemble,) if together else (AltMin, Backprop):
        monkeypatch.setattr(kind, "step", watched(kind.step))
    line = ["train", "--method", method, "--model", "mlp-1x16", "--batch-size", "50", "--seeds", "2"]
    for name in ("float32", "bf16"):
        seen.clear()
        assert run([*line, "--precision", name]) == 0
        assert seen == [name == "bf16"] * (4 if together else 8)


def test_a_run_does_not_go_on_in_another_precision(
    made_up: tuple[Tensor, Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["train", "--model", "mlp-1x16", "--checkpoint", "run"]
    assert run([*line, "--precision", "bf16"]) == 0
    assert run([*line, "--resume", "--epochs", "2"]) == 2
    assert "its precision is bf16, here it is float32" in capsys.readouterr().err


GPT = ["train", "--model", "gpt-1x16", "--data", "shakespeare", "--batch-size", "20", "--limit", "60"]


@pytest.mark.parametrize("method", ["am-adam", "adam"])
def test_a_gpt_learns_characters_and_writes_some(altmin: Any, method: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The model is trained once more through `fit`, and says the same with the same seed."""
    assert altmin(*GPT, "--method", method, "--seed", 3, "--sample", 40, "--validation", "--json", "run.json") == 0
    found, said = read("run.json"), capsys.readouterr().out
    train, part = ([t[:60] for t in data.load("shakespeare", "train")], data.load("shakespeare", "validation"))
    torch.manual_seed(3)
    again = methods.create(method, models.gpt(1, 16, 1, 64, 65))
    settings = {"augment": "random-windows"}
    row = fit(again, train, {"validation": part}, epochs=1, batch_size=20, seed=3, **settings).epochs[0]
    keys = ["epoch", "train_loss", "validation_accuracy", "validation_loss", "seconds"]
    assert list(found["epochs"][0]) == keys
    assert [found["epochs"][0][key] for key in keys[:-1]] == [row[key] for key in keys[:-1]]
    text = data.dataset("shakespeare").decode(models.sample(again.model, torch.tensor([0]), 40, seed=3))
    assert found["sample"] == text
    assert len(text) == 40
    assert f"validation accuracy {row['validation_accuracy']:.4f}, validation loss {row['validation_loss']:.4f}" in said
    assert said.partition(" s\n")[2].startswith(text)


def test_a_text_is_read_in_random_windows_unless_told_otherwise(altmin: Any) -> None:
    line = [*GPT[3:], "--model", "gpt-1x16"]
    found = {}
    for name, extra in {"default": [], "named": ["--augment", "random-windows"], "none": ["--augment", "none"]}.items():
        assert altmin("train", *line, "--method", "adam", *extra, "--json", "t.json") == 0
        assert altmin("compare", *line, "--methods", "adam", "--epochs", 1, *extra, "--json", "c.json") == 0
        trained, compared = read("t.json"), read("c.json")
        assert trained["config"].get("augment") == compared["config"].get("augment")
        found[name] = trained["config"].get("augment"), trained["epochs"][0]["train_loss"]
        assert compared["runs"][0]["epochs"][0]["train_loss"] == found[name][1]
    assert found["default"] == found["named"]
    assert (found["default"][0], found["none"][0]) == ("random-windows", None)
    torch.manual_seed(0)
    samples = [t[:60] for t in data.load("shakespeare", "train")]
    plain = fit(methods.create("adam", models.gpt(1, 16, 1, 64, 65)), samples, epochs=1, batch_size=20)
    assert found["none"][1] == plain.epochs[0]["train_loss"] != found["default"][1]


def test_a_resumed_run_reads_the_windows_of_an_uninterrupted_one(altmin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped by Ctrl-C in the second epoch."""
    line = [*GPT, "--method", "am-adam", "--epochs", 2, "--sample", 20]
    assert altmin(*line, "--json", "whole.json") == 0
    seen, step = [], AltMin.step

    def stopping(self: Any, x: Tensor, y: Tensor) -> Any:
        seen.append(x)
        if len(seen) == 5:
            raise KeyboardInterrupt
        return step(self, x, y)

    monkeypatch.setattr(AltMin, "step", stopping)
    kept = ["--checkpoint", "run", "--checkpoint-every", 1, "--json", "resumed.json"]
    assert altmin(*line, *kept) == 130
    assert altmin(*line, *kept, "--resume") == 0
    whole, resumed = read("whole.json"), read("resumed.json")
    assert [row["train_loss"] for row in resumed["epochs"]] == [row["train_loss"] for row in whole["epochs"]]
    assert resumed["sample"] == whole["sample"]


def test_images_are_changed_as_asked_and_the_result_says_so(altmin: Any) -> None:
    line = ["--model", "resnet18-2", "--batch-size", "20", "--limit", "40", "--json"]
    assert altmin("train", "--method", "adam", "--augment", "crop-flip", *line, "a.json") == 0
    assert altmin("train", "--method", "adam", *line, "plain.json") == 0
    assert altmin("compare", "--methods", "adam", "--epochs", 1, "--augment", "crop-flip", *line, "c.json") == 0
    torch.manual_seed(0)
    method, losses = methods.create("adam", models.resnet18(2, 10, 1)), []
    x, y = data.load("mnist", "train")
    for batch, rows in enumerate(epoch_order(40, 0, 0).split(20)):
        losses.append(float(method.step(crop_flip(x[rows], batch_generator(0, 0, batch)), y[rows]).loss))
    found, plain, compared = read("a.json"), read("plain.json"), read("c.json")
    assert found["epochs"][0]["train_loss"] == sum(losses) / 2
    assert compared["runs"][0]["epochs"][0]["train_loss"] == sum(losses) / 2
    assert plain["epochs"][0]["train_loss"] != sum(losses) / 2
    assert found["config"]["augment"] == compared["config"]["augment"] == "crop-flip"
    assert "augment" not in plain["config"]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--sample", 5], "--sample prints text of a gpt, given mlp-2x100 on mnist; try gpt-6x128"),
        ([*GPT[1:], "--sample", 5, "--seeds", 2], "--sample prints the text of one model, given --seeds 2"),
        (["--model", "gpt-1x16"], "gpt-1x16 reads sequences of tokens, these samples are (1, 28, 28) numbers"),
        (["--data", "shakespeare"], "mlp-2x100 reads numbers, these samples are sequences of tokens"),
        (["--augment", "flip"], "unknown augmentation 'flip'"),
        ([*GPT[1:], "--augment", "crop-flip"], "crops are made of images"),
        (["--augment", "random-windows"], "random windows are made of windows of tokens"),
        (["--schedule", "cosine", "--warmup", 9, "--limit", 400, "--batch-size", 100], "has 3 batches, given warmup=9"),
        (["--at", "1,fc"], "fc"),
        (["--at", ","], "--at names nothing"),
        (["--order", "weights-frist"], "weights-first"),
        (["--share", 1.5], "share"),
        (["--method", "adam", "--order", "weights-first"], "--order weights-first is about codes, but none of these"),
        (["--method", "adam", "--at", "1,3"], "--at 1,3 is about codes, but none of these methods has any: adam"),
        (["--share", 0.1, "--set", "share=0.2"], "--set and --share both give share of am-adam; give one of them"),
    ],
)
def test_what_does_not_go_together_is_refused_in_a_sentence(
    altmin: Any, arguments: list[Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert altmin("train", *arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
