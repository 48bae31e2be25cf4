"""CIFAR-10: colour photographs of 32 x 32 in ten classes, in the official binary batches."""

import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from torch import Tensor

from altmin.data.atomic import replacing
from altmin.data.base import Dataset, Folder
from altmin.data.damage import Damaged, digest, expect, md5
from altmin.data.download import download
from altmin.data.folders import data_folder
from altmin.data.gunzip import Limited, unpacking
from altmin.data.standardise import Scale, labels

FOLDER = "cifar-10-batches-bin"
ARCHIVE = "cifar-10-binary.tar.gz"
BESIDE = 1 << 20  # bytes in the archive for names and texts, of which it has some thousands


@dataclass(frozen=True, kw_only=True)
class Cifar10(Dataset):
    """Reads the training batches in order, cut into training and validation by `splits`, and the test batch."""

    md5: Mapping[str, str]
    """Of each batch, by its name without `.bin`; the last one is the test batch. No sha256 of them is published."""
    archive_sha256: str
    batch: int = 10_000

    @property
    def batch_size(self) -> int:
        """In bytes: a label and the values of an image for each sample."""
        return self.batch * (1 + prod(self.sample_shape))

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
        if not (archive.is_file() and digest(archive, "sha256") == self.archive_sha256):
            download(self.url, archive, self._check_archive, self.download_size)
        self._unpack(archive, wanted)
        archive.unlink()
        return list(wanted.values())

    def _check_archive(self, path: Path) -> None:
        expect(path, "sha256", digest(path, "sha256"), self.archive_sha256)

    def _unpack(self, archive: Path, wanted: Mapping[str, Path]) -> None:
        """Copy the wanted members to their paths and nothing else: no name in the archive is used as a path.

        A member must be a plain file of its size, and the archive no longer than its batches and a little text.
        """
        left = dict(wanted)
        limit = len(self.md5) * self.batch_size + BESIDE
        try:
            with unpacking(archive) as file:
                content = cast(BinaryIO, Limited(file, archive, limit))  # which is only read
                with tarfile.open(fileobj=content, mode="r|") as tar:
                    for member in tar:
                        if member.name in left:
                            self._copy(tar, member, archive, left.pop(member.name))
        except Damaged:
            raise
        except (tarfile.TarError, EOFError, ValueError) as error:
            raise Damaged(archive, f"it cannot be unpacked ({error})") from None
        if left:
            raise Damaged(archive, f"it lacks {', '.join(left)}")

    def _copy(self, tar: tarfile.TarFile, member: tarfile.TarInfo, archive: Path, path: Path) -> None:
        """Write the content of `member` to `path` if it is that batch; else raise Damaged."""
        content = tar.extractfile(member) if member.isreg() and member.size == self.batch_size else None
        if content is None:
            raise Damaged(archive, f"its member {member.name} is not a file of {self.batch_size:,} bytes")
        batch = content.read()
        self._records(path, batch)
        with replacing(path) as file:
            file.write(batch)

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
        with path.open("rb") as file:
            return self._records(path, file.read(self.batch_size + 1))  # one byte more than there should be

    def _records(self, path: Path, content: bytes) -> np.ndarray:
        """The records (batch, 1 + 3072) of a batch: a label, then the red, the green and the blue plane.

        Raises Damaged if size or checksum differ.
        """
        if len(content) != self.batch_size:
            size = f"{len(content):,}{' or more' if len(content) > self.batch_size else ''}"
            raise Damaged(path, f"it has {size} bytes, expected {self.batch_size:,}")
        expect(path, "md5", md5(content), self.md5[path.stem])
        return np.frombuffer(content, np.uint8).reshape(self.batch, -1)

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
    archive_sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    md5={
        "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
)
