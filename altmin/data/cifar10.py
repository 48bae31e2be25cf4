"""CIFAR-10: colour photographs of 32 x 32 in ten classes, in the official binary batches."""

import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from altmin.data.atomic import replacing
from altmin.data.base import Folder, Images
from altmin.data.damage import digest, expect, verified
from altmin.data.download import download
from altmin.data.folders import data_folder

FOLDER = "cifar-10-batches-bin"
ARCHIVE = "cifar-10-binary.tar.gz"


@dataclass(frozen=True, kw_only=True)
class Cifar10(Images):
    """The batches of training and validation in order, then the test batch."""

    checksums: Mapping[str, str]
    """The md5 of each batch, by its name without `.bin`; no sha256 of them is published."""
    archive_sha256: str
    batch: int = 10_000

    def files(self, root: Path) -> list[Path]:
        return [root / self.name / FOLDER / f"{name}.bin" for name in self.checksums]

    def check(self, path: Path) -> str:
        self._read(path)
        return f"md5 {self.checksums[path.stem]}"

    def help_missing(self, path: Path, root: Path) -> str:
        """As in `Dataset`; the official archive may be put in place by hand instead of its members."""
        command, archive = self.fetch_command(root), root / self.name / ARCHIVE
        return (
            f"{self.name}: {path} is missing; `{command}` downloads it ({self.size}), from {self.url},"
            f" and unpacks it, or only unpacks it if you put that archive at {archive} by hand"
        )

    def fetch(self, data_dir: Folder = None) -> list[Path]:
        root = data_folder(data_dir)
        wanted = [path for path in self.files(root) if not self.sound(path)]
        if not wanted:
            return []
        archive = root / self.name / ARCHIVE
        if not (archive.is_file() and digest(archive, "sha256") == self.archive_sha256):
            download(self.url, archive, self._check_archive, self.download_size)
        with tarfile.open(archive) as tar:  # which is the published one, so that its members can be relied on
            for path in wanted:
                with replacing(path) as file:
                    member = tar.extractfile(f"{FOLDER}/{path.name}")
                    assert member is not None
                    shutil.copyfileobj(member, file)
        archive.unlink()
        return wanted

    def _check_archive(self, path: Path) -> None:
        expect(path, "sha256", digest(path, "sha256"), self.archive_sha256)

    def _samples(self, test: bool, root: Path) -> tuple[np.ndarray, np.ndarray]:
        *train_batches, test_batch = self.files(root)
        records = np.concatenate([self._read(path) for path in ([test_batch] if test else train_batches)])
        return records[:, 1:].reshape(len(records), self.sample_shape[0], -1), records[:, 0]

    def _read(self, path: Path) -> np.ndarray:
        """The records (batch, 1 + 3072) of a batch: a label, then the red, the green and the blue plane."""
        size = self.batch * (1 + prod(self.sample_shape))
        content = verified(path, size, self.checksums[path.stem], "md5")
        return np.frombuffer(content, np.uint8).reshape(self.batch, -1)


CIFAR10 = Cifar10(
    name="cifar10",
    sample_shape=(3, 32, 32),
    classes=10,
    splits={"train": 40_000, "validation": 10_000, "test": 10_000},
    licence="none stated; cite Krizhevsky 2009",
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    download_size=170_052_171,
    archive_sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    checksums={
        "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
)
