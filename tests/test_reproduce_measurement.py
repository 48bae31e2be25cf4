"""A setting has the samples of one data set at a time, where they are needed."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from altmin import data
from altmin.paper.reproduce.measurement import Setting


def test_samples_are_loaded_once_and_only_those_of_one_data_set_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, str, Path]] = []

    def load(name: str, part: str, folder: Path) -> tuple[Tensor, Tensor]:
        asked.append((name, part, folder))
        return torch.arange(6.0).view(3, 2) + len(name), torch.arange(3)

    monkeypatch.setattr(data, "load", load)
    setting = Setting(torch.device("cpu"), tmp_path)
    x, y = setting.samples("mnist", "train", 2)
    assert (x.tolist(), y.tolist()) == ([[5, 6], [7, 8]], [0, 1])
    assert len(setting.samples("mnist", "train")[0]) == 3
    setting.samples("mnist", "test")
    assert asked == [("mnist", "train", tmp_path), ("mnist", "test", tmp_path)]
    setting.samples("higgs", "train")
    assert list(setting.loaded) == [("higgs", "train")]


def test_a_row_says_how_many_samples_and_which_it_had() -> None:
    setting = Setting(torch.device("cpu"))
    first, other = (setting.about((torch.full((4, 2), value), torch.arange(4))) for value in (0.0, 1.0))
    assert first["rows"] == 4
    assert first["data"] != other["data"]
