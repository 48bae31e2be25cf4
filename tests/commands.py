"""What the tests of the commands share: a folder to run them in, few samples, and how to read what they write."""

import contextlib
import functools
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from altmin import data
from altmin.cli import run

TRAIN = ["train", "--method", "adam", "--model", "mlp-1x16", "--batch-size", "50", "--limit", "220"]
COMPARE = ["compare", "--model", "mlp-1x16", "--batch-size", "50", "--limit", "220", "--epochs", "2"]
real_load = functools.cache(data.load)


@pytest.fixture
def altmin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs a command in an empty folder, on the first 300 samples of each part: enough to see a difference."""

    def load(name: str, split: str, data_dir: Any = None) -> tuple[Tensor, Tensor]:
        x, y = real_load(name, split, data_dir)
        return x[:300], y[:300]

    monkeypatch.setattr(data, "load", load)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run([str(each) for each in arguments])


def said(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = run(arguments)
    return code, out.getvalue(), error.getvalue()


def read(path: str) -> Any:
    return json.loads(Path(path).read_text())


def without_seconds(result: dict[str, Any]) -> dict[str, Any]:
    for row in result["epochs"]:
        assert row.pop("seconds") > 0
    return result
