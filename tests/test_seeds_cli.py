"""`altmin train --seeds`: the runs that the same command gives seed by seed."""

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from altmin import data
from altmin.cli import run
from altmin.cli.running import Trial

real_load = functools.cache(data.load)
TRAIN = ["train", "--model", "mlp-1x16", "--batch-size", "50", "--limit", "220", "--epochs", "2", "--eval-batches", "3"]


@pytest.fixture
def altmin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    def load(name: str, split: str, data_dir: Any = None) -> tuple[Tensor, Tensor]:
        x, y = real_load(name, split, data_dir)
        return x[:300], y[:300]

    monkeypatch.setattr(data, "load", load)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run([str(each) for each in arguments])


def read(path: str) -> Any:
    return json.loads(Path(path).read_text())


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("method", ["am-adam", "adam", "am-adam-offline"])
def test_several_seeds_are_the_runs_that_train_gives_one_by_one(
    altmin: Any, method: str, together: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after the other, as on a CPU, or together, as on a GPU; a method that cannot be is run in turn there too."""
    monkeypatch.setattr(Trial, "together", together)
    command = [*TRAIN, "--method", method]
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
    line = [*TRAIN, "--method", "sgd", "--lr", 1e30, "--seeds", 2, "--json", "run.json"]
    assert altmin(*line) == 1
    error = capsys.readouterr().err
    assert re.fullmatch(r"altmin:\n  seed 0: training diverged: .*\n  seed 1: training diverged: .*\n", error)
    assert [list(found) for found in read("run.json")["runs"]] == [["seed", "batches", "epochs", "diverged"]] * 2


def test_one_seed_is_as_ever_and_checkpoints_are_for_one_run(altmin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert altmin(*TRAIN, "--method", "adam", "--seeds", 1, "--checkpoint", "kept", "--json", "one.json") == 0
    assert list(read("one.json"))[-2:] == ["batches", "epochs"]
    assert altmin(*TRAIN, "--method", "adam", "--seeds", 2, "--checkpoint", "kept") == 2
    assert "--checkpoint keeps one run, given --seeds 2" in capsys.readouterr().err
    assert altmin(*TRAIN, "--method", "adam", "--seeds", 2, "--checkpoint-every", 2) == 2
    assert "--checkpoint-every needs --checkpoint FILE" in capsys.readouterr().err


def test_recording_without_a_gpu_is_refused_with_the_remedy(altmin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert altmin(*TRAIN, "--record") == 2
    assert "which --device cpu does not have; give --device cuda" in capsys.readouterr().err
