"""Data sets of 28 x 28 grey images in four gzipped idx files, as MNIST has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
from torch import Tensor

from altmin.data.base import Dataset, Folder
from altmin.data.download import download
from altmin.data.folders import data_folder
from altmin.data.idx import read_idx
from altmin.data.standardise import Scale, labels


@dataclass(frozen=True, kw_only=True)
class IdxImages(Dataset):
    """Training and validation are cut from the training file by `splits`, in file order."""

    sha256: Mapping[str, str]
    """Of the unpacked content of each file, by its name without `.gz`."""

    def files(self, root: Path) -> list[Path]:
        return [self._find(root, name) for name in self.sha256]

    def check(self, path: Path) -> str:
        self._read(path)
        return f"sha256 {self.sha256[path.stem]}"

    def fetch(self, data_dir: Folder = None) -> list[Path]:
        if self.embedded is not None:
            return []
        fetched = []
        for path in self.files(data_folder(data_dir)):
            if not self.sound(path):
                download(self.url + path.name, path, partial(self._read, name=path.stem), self.download_size)
                fetched.append(path)
        return fetched

    def _load(self, split: str, root: Path) -> tuple[Tensor, Tensor]:
        train_images, train_labels, test_images, test_labels = self.files(root)
        first = slice(self.splits["train"])
        key = (self.sha256[train_images.stem], first.stop)
        if split == "test":
            images, classes = self._images(test_images), self._read(test_labels)
            scale = Scale.remembered(key, lambda: self._images(train_images)[first])
        else:
            part = first if split == "train" else slice(first.stop, None)
            every = self._images(train_images)
            images, classes = every[part], self._read(train_labels)[part]
            scale = Scale.remembered(key, lambda: every[first])
        return scale.apply(images), labels(classes)

    def _find(self, root: Path, name: str) -> Path:
        """The file in the data folder, or the embedded one if that is missing; both must have the same checksum."""
        path = root / self.name / f"{name}.gz"
        return path if self.embedded is None or path.is_file() else self.embedded / path.name

    def _read(self, path: Path, name: str | None = None) -> np.ndarray:
        """The verified content of `path`. name: the file that it should be, where `path` has another name."""
        name = name or path.stem
        images = self.splits["test"] if name.startswith("t10k") else self.splits["train"] + self.splits["validation"]
        if "idx3" in name:
            return read_idx(path, 3, images * prod(self.sample_shape), self.sha256[name])
        return read_idx(path, 1, images, self.sha256[name])

    def _images(self, path: Path) -> np.ndarray:
        return self._read(path)[:, None]
