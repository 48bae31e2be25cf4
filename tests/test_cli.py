"""The `altmin` command as a whole: exit codes, one line for each mistake that leaves nothing, files."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import TRAIN, altmin, read  # noqa: F401  (a fixture)

from altmin import data, explain, models
from altmin.cli import options, output
from altmin.training import epoch_order

# ruff: noqa: F811

ERRORS = {
    "train --data mnits": "did you mean 'mnist'?",
    "train --method adam --set weight_decy=1": "did you mean 'weight_decay'?",
    "train --method adam --set lr": "NAME=VALUE",
    "train --method adam --set fused=no": "true or false",
    "train --method adam --batch 3": "--batch-size",
    "train --method adam --eval-batches 99": "99",
    "train --method adam --schedule cosin": "did you mean 'cosine'?",
    "train --method adam --device cuda:99": "cuda:99",
    "train --method adam --precision bf61": "did you mean 'bf16'?",
    "train --method adam --json folder": "folder",
    "train --method adam --checkpoint torn --json torn": "torn",
    "train --method adam --checkpoint torn --resume": "torn",
    "train --method adam --resume": "resume",
    "train --model binary-16 --method adam": "Sign has no derivative",
    "train --set share=1.5": "share",
    "compare --methods ,": "--methods",
    "compare --methods adam --set sgd.lr=1": "'sgd'",
    "compare --methods adam --plot curves.bmp": ".png",
    "doctor": "model",
    "data fetch cifar": "did you mean 'cifar10'?",
    "trian": "trian",
    "--colour": "--colour",
}


@pytest.mark.parametrize("line", ERRORS)
def test_a_mistake_gets_one_line_and_code_2_and_leaves_nothing(
    line: str, altmin: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("folder").mkdir()
    Path("torn").write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    assert altmin(*line.split()) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("altmin: ")
    assert error.count("\n") == 1
    assert ERRORS[line] in error
    assert sorted(os.listdir()) == ["folder", "torn"]
    assert Path("torn").read_bytes() == b"\x08\0\0\0\0\0\0\0{}"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device", "run.json"), RuntimeError("a defect")])
def test_a_full_disc_is_told_in_one_line_a_defect_is_not_hidden_and_nothing_is_half_written(
    error: Exception, altmin: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fails)
    if isinstance(error, OSError):
        assert altmin(*TRAIN, "--json", "run.json") == 2
        assert "No space left on device" in capsys.readouterr().err
    else:
        with pytest.raises(RuntimeError, match="a defect"):
            altmin(*TRAIN, "--json", "run.json")
    assert os.listdir() == []


def test_the_package_is_the_command_too_which_is_quiet_in_a_pipe(tmp_path: Path) -> None:
    small = ["--method", "adam", "--model", "gpt-1x8", "--data", "shakespeare", "--batch-size", "50", "--limit", "100"]
    line = [sys.executable, "-m", "altmin", "train", *small, "--threads", "1", "--json", "run.json"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    row = json.loads((tmp_path / "run.json").read_text())["epochs"][0]
    assert f"test accuracy {row['test_accuracy']:.4f}" in first
    assert f"train loss {row['train_loss']:.4f}" in first
    assert second == "wrote run.json"


@pytest.mark.parametrize("delay", [0.6, 4.0])
def test_ctrl_c_ends_the_command_with_one_line_and_130(delay: float, tmp_path: Path) -> None:
    """While torch is imported, and in training."""
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell's background ignores it
    script = f"{heard}; from altmin.cli import main; print('started', flush=True); main()"
    line = [sys.executable, "-c", script, "train", "--method", "adam", "--model", "mlp-1x16", "--epochs", "1000"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert error.startswith("altmin: stopped")
    assert error.count("\n") == 1


def test_results_that_cannot_be_written_are_found_out_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("a.json")
    output.check_writable(None, tmp_path / "new.json", Path(os.devnull), Path(os.devnull), picture=tmp_path / "a.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["link"]
    for paths in ([tmp_path], [tmp_path / "nowhere" / "a.json"], [tmp_path / "a.json", tmp_path / "link"]):
        with pytest.raises((OSError, ValueError)):
            output.check_writable(*paths)


def test_values_of_options_are_python_literals_or_texts() -> None:
    pairs = ["amsgrad=true", "adam.lr=0.1", "lr=2", "weight_decay=1e-3", "adamw.betas=['1', '3']"]
    adam, adamw = (options.of_methods(pairs, ["adam", "adamw"])[name] for name in ("adam", "adamw"))
    assert [adam[name] for name in ("amsgrad", "lr", "weight_decay")] == [True, 0.1, 1e-3]
    assert [adamw[name] for name in ("lr", "betas")] == [2, ["1", "3"]]


def test_doctor_writes_what_explain_returns(altmin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["doctor", "mlp-2x16", "--batch-size", 50, "--set", "share=0.3", "--lr", 0.02, "--seed", 3]
    assert altmin(*line, "--json", "d.json") == 0
    found, shown = read("d.json"), capsys.readouterr().out
    torch.manual_seed(3)
    model = models.create("mlp-2x16", (1, 28, 28), 10)
    x, y = data.load("mnist", "train")
    rows = epoch_order(300, 3, 0)[:50]
    expected = explain(model, x[rows], y[rows], share=0.3, lr=0.02).to_dict()
    assert {name: found[name] for name in expected} == json.loads(json.dumps(expected))
    assert found["config"]["options"]["share"] == 0.3
    assert all(f"- {line}" in shown for line in found["advice"])
