"""CIFAR-10: colour photographs of 32 x 32 in ten classes, in the official binary batches."""

import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from torch import Tensor

from altmin.data.atomic import replacing
from altmin.data.base import Dataset, Folder
from altmin.data.damage import Damaged, digest, expect, md5
from altmin.data.download import download
from altmin.data.folders import data_folder
from altmin.data.standardise import Scale, labels

FOLDER = "cifar-10-batches-bin"
ARCHIVE = "cifar-10-binary.tar.gz"


@dataclass(frozen=True, kw_only=True)
class Cifar10(Dataset):
    """Reads the training batches in order, cut into training and validation by `splits`, and the test batch."""

    md5: Mapping[str, str]
    """Of each batch, by its name without `.bin`; the last one is the test batch."""
    archive_md5: str
    batch: int = 10_000

    def files(self, root: Path) -> list[Path]:
        return [root / self.name / FOLDER / f"{name}.bin" for name in self.md5]

    def check(self, path: Path) -> str:
        self._read(path)
        return f"md5 {self.md5[path.stem]}"

    def help_missing(self, path: Path, root: Path) -> str:
        """As in `Dataset`; the official archive may be put in place by hand instead of its members."""
        command, archive = self.fetch_command(root), root / self.name / ARCHIVE
        return (
            f"{self.name}: {path} is missing; `{command}` downloads it ({self.size}), from {self.url},"
            f" and unpacks it, or only unpacks it if you put that archive at {archive} by hand"
        )

    def fetch(self, data_dir: Folder = None) -> list[Path]:
        root = data_folder(data_dir)
        wanted = {f"{FOLDER}/{path.name}": path for path in self.files(root) if not self.sound(path)}
        if not wanted:
            return []
        archive = root / self.name / ARCHIVE
        if not (archive.is_file() and digest(archive, "md5") == self.archive_md5):
            download(self.url, archive, self._check_archive)
        self._unpack(archive, wanted)
        archive.unlink()
        return list(wanted.values())

    def _check_archive(self, path: Path) -> None:
        expect(path, "md5", digest(path, "md5"), self.archive_md5)

    def _unpack(self, archive: Path, wanted: Mapping[str, Path]) -> None:
        """Copy the wanted members to their paths and nothing else: no name in the archive is used as a path."""
        left = dict(wanted)
        try:
            with tarfile.open(archive) as tar:
                for member in tar:
                    if member.name in left and (content := tar.extractfile(member)):
                        path = left.pop(member.name)
                        with replacing(path) as file:
                            batch = content.read()
                            self._records(path, batch)
                            file.write(batch)
        except (tarfile.TarError, EOFError) as error:
            raise Damaged(archive, f"it cannot be unpacked ({error})") from None
        if left:
            raise Damaged(archive, f"it lacks {', '.join(left)}")

    def _load(self, split: str, root: Path) -> tuple[Tensor, Tensor]:
        *train_batches, test_batch = self.files(root)
        first = slice(self.splits["train"])
        key = (*self.md5.values(), first.stop)

        def training() -> np.ndarray:
            return np.concatenate([self._read(path) for path in train_batches])

        if split == "test":
            records = self._read(test_batch)
            scale = Scale.remembered(key, lambda: self._images(training()[first]))
        else:
            every = training()
            scale = Scale.remembered(key, lambda: self._images(every[first]))
            records = every[first if split == "train" else slice(first.stop, None)]
        return scale.apply(self._images(records)), labels(records[:, 0])

    def _read(self, path: Path) -> np.ndarray:
        return self._records(path, path.read_bytes())

    def _records(self, path: Path, content: bytes) -> np.ndarray:
        """The records (batch, 1 + 3072) of a batch: a label, then the red, the green and the blue plane.

        Raises Damaged if size or checksum differ.
        """
        record = 1 + prod(self.sample_shape)
        if len(content) != self.batch * record:
            raise Damaged(path, f"it has {len(content):,} bytes, expected {self.batch * record:,}")
        expect(path, "md5", md5(content), self.md5[path.stem])
        return np.frombuffer(content, np.uint8).reshape(-1, record)

    def _images(self, records: np.ndarray) -> np.ndarray:
        return records[:, 1:].reshape(-1, *self.sample_shape)


CIFAR10 = Cifar10(
    name="cifar10",
    sample_shape=(3, 32, 32),
    classes=10,
    splits={"train": 40_000, "validation": 10_000, "test": 10_000},
    licence="none stated; cite Krizhevsky 2009",
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    download_size=170_052_171,
    archive_md5="c32a1d4ab5d03f1284b67883e8d87530",
    md5={
        "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
)
