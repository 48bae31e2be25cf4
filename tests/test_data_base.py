"""What every data set shares: what is said of missing files, and where they are."""

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

import altmin.data
from altmin.data.base import SPLITS, Dataset, Folder, megabytes
from altmin.data.damage import Damaged


@pytest.mark.parametrize("name", ["fashion-mnist", "cifar10", "higgs"])
def test_missing_files_are_named_and_not_downloaded(name, tmp_path, monkeypatch):
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("downloaded by surprise"))
    with pytest.raises(FileNotFoundError) as caught:
        altmin.data.load(name, "train", tmp_path)
    message = str(caught.value)
    assert f"{tmp_path}{os.sep}{name}" in message
    assert f"`altmin data fetch {name} --data-dir {tmp_path}`" in message
    assert altmin.data.dataset(name).size in message
    assert "by hand" in message
    assert "\n" not in message
    monkeypatch.setenv("ALTMIN_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"`altmin data fetch {name}`"):
        altmin.data.load(name, "train")


def test_describe_tells_where_the_files_are(tmp_path):
    assert altmin.data.describe("mnist", tmp_path).state == "embedded"
    described = altmin.data.describe("cifar10", tmp_path)
    assert (described.state, described.classes) == ("missing", 10)
    batches = tmp_path / "cifar10" / "cifar-10-batches-bin"
    assert described.where == str(batches)
    batches.mkdir(parents=True)
    (batches / "data_batch_3.bin").write_bytes(b"")
    assert altmin.data.describe("cifar10", tmp_path).state == "incomplete"


class Numbers(Dataset):
    """Two files, each sound if it holds a number."""

    def files(self, root: Path) -> list[Path]:
        return [root / "numbers" / "a", root / "numbers" / "b"]

    def check(self, path: Path) -> str:
        if not path.read_text().isdigit():
            raise Damaged(path, "it holds no number")
        return "a number"

    def fetch(self, data_dir: Folder = None) -> list[Path]:
        return []

    def _load(self, split: str, root: Path) -> tuple[Tensor, Tensor]:
        numbers = [float(path.read_text()) for path in self.files(root) if self.check(path)]
        return torch.tensor(numbers), torch.tensor([SPLITS.index(split)])


NUMBERS = Numbers(
    name="numbers", sample_shape=(), classes=1, splits={}, licence="none", url="somewhere", download_size=2_000_000
)


def test_a_data_set_loads_checks_and_describes_what_is_there(tmp_path: Path) -> None:
    assert NUMBERS.verify(tmp_path) == []
    first, second = NUMBERS.files(tmp_path)
    first.parent.mkdir()
    first.write_text("7")
    assert [check.state for check in NUMBERS.verify(tmp_path)] == ["sound", "missing"]
    assert NUMBERS.missing(tmp_path) == [second]
    second.write_text("x")
    sound, damaged = NUMBERS.verify(tmp_path)
    assert (sound.state, sound.detail) == ("sound", "a number")
    assert (damaged.state, NUMBERS.sound(second)) == ("damaged", False)
    assert damaged.detail.startswith("it holds no number; `altmin data fetch numbers` replaces it")
    with pytest.raises(Damaged, match=f"{second} is damaged: it holds no number; `altmin data fetch numbers` replaces"):
        NUMBERS.load("test", tmp_path)
    second.write_text("5")
    x, y = NUMBERS.load("test", tmp_path)
    assert (x.tolist(), y.tolist()) == ([7, 5], [2])
    assert NUMBERS.describe(tmp_path).state == "found"


@pytest.mark.parametrize("size, shown", [(1, "1 MB"), (30_878_645, "31 MB"), (2_816_407_858, "2.8 GB")])
def test_sizes_are_written_as_people_read_them(size: int, shown: str) -> None:
    assert megabytes(size) == shown
