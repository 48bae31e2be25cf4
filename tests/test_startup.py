"""Ctrl-C at any time after the command's first line: one line and exit code 130, no traceback."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from altmin.common import startup

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = """
import sys
print("started", flush=True)
from altmin.cli import main
main()
"""
LONG = ["train", "--method", "adam", "--model", "mlp-1x16", "--epochs", "1000"]


def interrupted(script: Path, delay: float) -> tuple[int, str]:
    """Exit code and standard error of a long training run that is sent SIGINT so many seconds after its start."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), *LONG]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=script.parent, env=environment
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    try:
        _, error = process.communicate(timeout=30)
    finally:
        process.kill()
    return process.returncode, error


@pytest.mark.parametrize("delay", [0.05, 0.6, 3.0])
def test_ctrl_c_ends_the_command_with_one_line_whatever_it_is_doing(delay: float, tmp_path: Path) -> None:
    script = tmp_path / "altmin"
    script.write_text(SCRIPT)
    code, error = interrupted(script, delay)
    assert code == 130
    assert re.fullmatch(r"altmin: stopped( in epoch \d+, batch \d+ of \d+)?\n", error)


def test_a_running_command_is_not_cut_off_but_says_how_to_go_on(tmp_path: Path) -> None:
    program = """
import signal
from altmin import methods
from altmin.common import startup
from altmin.cli import main
startup.guard()
methods.backprop.Backprop.step = lambda *_: signal.raise_signal(signal.SIGINT)
main("train --method adam --model gpt-1x8 --data shakespeare --limit 100 --checkpoint run".split())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 130
    assert done.stderr.startswith("altmin: stopped in epoch 1, batch 1 of ")


@pytest.mark.parametrize(
    "argv, original, expected",
    [
        (["/usr/bin/altmin", "train"], ["python", "/usr/bin/altmin", "train"], True),
        (["-m", "train"], ["python", "-m", "altmin.cli", "train"], True),
        (["-m", "train"], ["python", "-u", "-m", "altmin", "train"], True),
        (["-m"], ["python", "-m", "pytest"], False),
        (["study.py", "altmin"], ["python", "study.py", "altmin"], False),
        (["-c"], ["python", "-c", "import altmin"], False),
        ([""], ["python"], False),
        ([], [], False),
    ],
)
def test_only_the_command_is_guarded(
    argv: list[str], original: list[str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", original)
    assert startup.is_command() is expected


def test_the_guard_is_lifted_for_a_block_and_respects_what_else_is_set() -> None:
    usual = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as `nohup` and shells in the background do
        startup.guard()
        with startup.lifted():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with startup.lifted():
            pass
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        startup.guard()
        with pytest.raises(KeyboardInterrupt), startup.lifted():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is startup._stop
    finally:
        signal.signal(signal.SIGINT, usual)


def test_within_an_import_the_guard_is_back_in_the_command_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        startup.guard()
        for command, expected in ((True, startup._stop), (False, signal.default_int_handler)):
            monkeypatch.setattr(startup, "is_command", lambda command=command: command)
            with startup.lifted():
                with startup.importing():
                    assert signal.getsignal(signal.SIGINT) is expected
                assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, usual)
