"""What the tests of figures share: made-up samples, a folder of results, and a place where measurements are made."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from altmin import data
from reproduction import figure, search
from reproduction.results import Setting


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, Tensor]:
    """The samples of every data set: 200 random ones that need no file."""
    samples = torch.randn(200, 1, 28, 28), torch.randint(10, (200,))
    monkeypatch.setattr(data, "load", lambda name, split, data_dir=None: samples)
    return samples


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of results."""
    for module in (figure, search):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    return tmp_path


@pytest.fixture
def setting() -> Setting:
    return Setting(torch.device("cpu"), environment={"torch": "x"})


@pytest.fixture
def quiet() -> Any:
    return lambda *_: None
