"""CIFAR-10: colour photographs of 32 x 32 in ten classes, in the official binary batches."""

import tarfile
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from altmin.common.files import replacing
from altmin.data.base import Images, digest, download, verified

FOLDER = "cifar-10-batches-bin"


@dataclass(frozen=True, kw_only=True)
class Cifar10(Images):
    """The batches of training and validation in order, then the test batch.

    checksums: the md5 of each batch, by its name; no sha256 of them is published.
    """

    archive_sha256: str

    def files(self, root: Path) -> list[Path]:
        return [root / self.name / FOLDER / f"{name}.bin" for name in self.checksums]

    def check(self, path: Path) -> None:
        self._read(path)

    def _fetch(self, wanted: list[Path]) -> None:
        archive = wanted[0].parent.parent / Path(self.url).name
        if not (archive.is_file() and digest(archive) == self.archive_sha256):  # it may be put there by hand
            download(self.url, archive, self.archive_sha256)
        with tarfile.open(archive) as tar:  # which is the published one, so that its members can be relied on
            for path in wanted:
                with replacing(path) as file:
                    file.write(tar.extractfile(f"{FOLDER}/{path.name}").read())  # type: ignore[union-attr]
        archive.unlink()

    def _samples(self, test: bool, root: Path) -> tuple[np.ndarray, np.ndarray]:
        *training, last = self.files(root)
        records = np.concatenate([self._read(path) for path in ([last] if test else training)])
        return records[:, 1:].reshape(len(records), self.sample_shape[0], -1), records[:, 0]

    def _read(self, path: Path) -> np.ndarray:
        """Return the records (n, 1 + 3072) of a batch: a label, then the red, the green and the blue plane."""
        content = verified(path, self.checksums[path.stem], "md5")
        return np.frombuffer(content, np.uint8).reshape(-1, 1 + prod(self.sample_shape))


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
