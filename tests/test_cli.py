"""The `altmin` command as a whole: help, exit codes, one line for each mistake that leaves nothing behind."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import TRAIN, altmin  # noqa: F401  (a fixture)

from altmin import methods

# ruff: noqa: F811


ERRORS = {
    "train --data mnits": "unknown data set 'mnits'; did you mean 'mnist'?",
    "train --model lenet6": "unknown model 'lenet6'; did you mean 'lenet5'?",
    "train --method adan": "unknown method 'adan'; did you mean 'adam'?",
    "train --method adam --set weight_decy=1": "'weight_decy'; did you mean 'weight_decay'?",
    "train --method adam --set lr": "--set takes name=value, such as lr=0.001, not 'lr'",
    "train --method adam --set lr=fast": "option lr of method 'adam' takes a number, not 'fast'",
    "train --method adam --set lr=1 --lr 2": "--set and --lr both give lr of adam",
    "train --method adam --set lr=1 --set lr=2": "gives lr twice",
    "train --method admm --lr 2": "--lr 2.0 is a learning rate, but none of these methods has any: admm",
    "train --config none.toml": "there is no file none.toml with settings; --save-config none.toml writes one",
    "train --config folder": "folder: Is a directory",
    "train --save-config nowhere/run.toml": "the folder nowhere of run.toml does not exist",
    "compare --config torn": "torn cannot be read as TOML",
    "train --method adam --lr=-1": "lr of adam must be a finite number of at least 0",
    "train --method adam --epochs 0": "--epochs",
    "train --method adam --epochs many": "--epochs",
    "train --method adam --batch 3": "--batch-size",
    "train --method adam --batch-size 0": "--batch-size",
    "train --method adam --limit 0": "--limit",
    "train --method adam --eval-batches a": "--eval-batches takes whole numbers, such as 25,50, not 'a'",
    "train --method adam --eval-batches 99": "cannot evaluate after batch 99",
    "train --method adam --schedule cosin": "unknown schedule 'cosin'; did you mean 'cosine'?",
    "train --method adam --device cua": "unknown device 'cua'; did you mean 'cuda'?",
    "train --method adam --device cuda:99": "device 'cuda:99' is not available",
    "train --method adam --precision bf61": "unknown precision 'bf61'; did you mean 'bf16'?",
    "train --method adam --precision tf32": "precision 'tf32' is of GPUs only and would change nothing on the cpu",
    "compare --methods adam --precision tf32": "use --device cuda, or --precision float32",
    "train --method adam --json nowhere/run.json": "the folder nowhere of run.json does not exist",
    "train --method adam --json folder": "folder is a folder; name a file in it",
    "train --method adam --checkpoint nowhere/run": "the folder nowhere of run does not exist",
    "train --method adam --resume": "--resume needs --checkpoint FILE",
    "train --method adam --checkpoint none --resume": "there is no checkpoint none to go on from; leave out --resume",
    "train --method adam --checkpoint torn --resume": "torn cannot be read as a checkpoint",
    "train --method adam --checkpoint torn": "torn exists already",
    "train --method adam --checkpoint-every 2": "--checkpoint-every needs --checkpoint FILE",
    "compare --methods adam,sgdd": "unknown method 'sgdd'; did you mean 'sgd'?",
    "compare --methods ,": "--methods names nothing",
    "compare --methods adam --set sgd.lr=1": "unknown method in --set, 'sgd'",
    "compare --methods adam,sgd --set momentum=0.5": "unknown option of method 'adam', 'momentum'",
    "compare --methods adam --plot curves.bmp": "curves.bmp should end in .png or .svg or .pdf",
    "compare --methods adam --plot nowhere/curves.png": "the folder nowhere of curves.png does not exist",
    "compare --methods adam --seeds 0": "--seeds",
    "train --model binary-16 --method adam": "Sign has no derivative, so neither backprop nor GradientCodes",
    "train --model binary-16 --codes gradient": "Sign has no derivative, so neither backprop nor GradientCodes",
    "train --model binary-16 --codes discret": "unknown code solver 'discret'; did you mean 'discrete'?",
    "train --model binary-16 --set codes=discret": "unknown codes of method 'am-adam', 'discret'; did you mean",
    "compare --model binary-16 --codes sign": "unknown code solver 'sign'",
    "train --codes exact": "RecurrentCodes moves codes in time, and this chain has no Recurrent",
    "train --method adam --codes discrete": "none of these methods has any: adam",
    "train --codes discrete --set codes=gradient": "--set and --codes both give codes of am-adam",
    "train --model binary-0": "unknown model 'binary-0'",
    "compare --methods adam,sgd --codes discrete": "none of these methods has any: adam, sgd",
    "compare --methods am-adam --codes discrete --set codes=gradient": "--set and --codes both give codes of am-adam",
    "train --sweep parallel": "--sweep",
    "data fetch cifar": "did you mean 'cifar10'?",
    "data lst": "No such command 'lst'",
    "trian": "'trian'",
    "--colour": "--colour",
}


@pytest.mark.parametrize("line", ERRORS)
def test_a_mistake_gets_one_clear_line_and_code_2_and_leaves_nothing(
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


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_forbidden_folder_is_found_out_before_training(altmin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    Path("locked").mkdir(mode=0o500)
    assert altmin(*TRAIN, "--json", "locked/run.json") == 2
    assert "locked: Permission denied" in capsys.readouterr().err


def test_a_full_disc_is_told_in_one_line(
    altmin: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "run.json")

    monkeypatch.setattr(os, "fsync", full)
    assert altmin(*TRAIN, "--json", "run.json") == 2
    assert capsys.readouterr().err == "altmin: run.json: No space left on device\n"
    assert os.listdir() == []


def test_what_is_not_the_users_mistake_is_not_hidden(altmin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(methods.backprop.Backprop, "step", broken)
    with pytest.raises(RuntimeError, match="a defect"):
        altmin(*TRAIN)


def test_the_package_is_the_command_too_which_is_quiet_in_a_pipe(tmp_path: Path) -> None:
    small = ["--method", "adam", "--model", "gpt-1x8", "--data", "shakespeare", "--batch-size", "50", "--limit", "100"]
    line = [sys.executable, "-m", "altmin.cli", "train", *small, "--threads", "1", "--json", "run.json"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    found = json.loads((tmp_path / "run.json").read_text())["epochs"][0]
    assert f"test accuracy {found['test_accuracy']:.4f}" in first
    assert f"train loss {found['train_loss']:.4f}" in first
    assert second == "wrote run.json"


@pytest.mark.parametrize("command", ["train", "compare", "data"])
def test_every_command_has_help_with_the_common_options(
    command: str, altmin: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert altmin(command, "--help") == 0
    shown = capsys.readouterr().out
    if command != "data":
        assert f"Example: altmin {command}" in shown
        assert all(option in shown for option in ("--device", "--seed", "--json"))


@pytest.mark.parametrize("group", [[], ["data"]])
def test_without_a_command_there_is_help_and_no_error(
    group: list[str], altmin: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert altmin(*group) == 0
    alone, error = capsys.readouterr()
    assert error == ""
    assert altmin(*group, "--help") == 0
    assert capsys.readouterr().out.split() == alone.split()
