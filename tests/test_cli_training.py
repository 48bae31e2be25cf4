"""Runs as the commands start them: the same in turn and as an ensemble, in the precision that was asked for."""

import json
from pathlib import Path

import pytest
import torch
from commands import made_up  # noqa: F401  (a fixture)
from torch import Tensor

from altmin import methods, models
from altmin.calculus import products
from altmin.cli import run
from altmin.execution.precision import NAMES, available, check, using
from altmin.fit import fit
from altmin.fit.trial import Trial

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
        with using(name):
            history = fit(learner, made_up, epochs=1, batch_size=50)
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
    seen = []
    monkeypatch.setattr(Trial, "together", together)
    monkeypatch.setattr("altmin.fit.evaluate.accuracy", lambda *_: seen.append(products._rounds.on) or 0.0)
    line = ["train", "--method", method, "--model", "mlp-1x16", "--batch-size", "50", "--seeds", "2"]
    for name in ("float32", "bf16"):
        assert run([*line, "--precision", name]) == 0
    assert seen == [False, False, True, True]


def test_a_run_does_not_go_on_in_another_precision(
    made_up: tuple[Tensor, Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["train", "--model", "mlp-1x16", "--checkpoint", "run"]
    assert run([*line, "--precision", "bf16"]) == 0
    assert run([*line, "--resume", "--epochs", "2"]) == 2
    assert "its precision is bf16, here it is float32" in capsys.readouterr().err
