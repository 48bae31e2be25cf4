"""The base class of data sets: properties, files, and the errors for missing or damaged files."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from altmin.common.errors import unknown
from altmin.data.damage import Damaged
from altmin.data.folders import data_folder
from altmin.data.standardise import Scale

SPLITS = ("train", "validation", "test")

Folder = str | os.PathLike[str] | None


@dataclass(frozen=True)
class Description:
    """Properties of a data set, available without reading its samples."""

    name: str
    sample_shape: tuple[int, ...]
    classes: int
    splits: dict[str, int]
    """Samples per split; those of a partial file, if only such a file was found."""
    state: str
    """`embedded`, `found`, `incomplete` (some files are missing), `partial` (fewer rows) or `missing`."""
    where: str
    """The folder or file, or where it is expected."""
    licence: str
    source: str
    download_size: int
    """In bytes; 0 where nothing need be downloaded."""


@dataclass(frozen=True)
class Check:
    """The outcome of verifying one file."""

    path: Path
    state: str
    """`sound`, `damaged` or `missing`."""
    detail: str


@dataclass(frozen=True, kw_only=True)
class Dataset(ABC):
    """A data set: its properties are attributes, `load` reads its samples. No file is opened before that."""

    name: str
    sample_shape: tuple[int, ...]
    classes: int
    splits: Mapping[str, int]
    licence: str
    url: str
    download_size: int
    """In bytes; no download of it may have more."""
    embedded: Path | None = None
    """A folder within the package, used for files which the data folder does not have."""
    tokens: bool = False
    """Whether samples are tokens, int64 from 0 to classes - 1, and labels the tokens that follow them."""

    @property
    def size(self) -> str:
        """`download_size` in MB or GB."""
        return megabytes(self.download_size)

    def load(self, split: str, data_dir: Folder = None) -> tuple[Tensor, Tensor]:
        """Samples (n, *sample_shape), float32 and standardised by the training split, and labels (n,), int64.

        For a data set of tokens both are int64 of shape (n, *sample_shape).

        split: one of `SPLITS`. data_dir: see `folders.data_folder`. Nothing is downloaded.

        Raises ValueError for an unknown split, FileNotFoundError if a file is missing, Damaged if one is invalid.
        """
        if split not in SPLITS:
            raise unknown("split", split, SPLITS)
        root = data_folder(data_dir)
        if missing := self.missing(root):
            raise FileNotFoundError(self.help_missing(missing[0], root))
        try:
            return self._load(split, root)
        except Damaged as error:
            raise Damaged(error.path, error.what, self.mend(error.path)) from None

    def verify(self, data_dir: Folder = None) -> list[Check]:
        """Compare every file with its checksum. Returns an empty list if none exists."""
        root = data_folder(data_dir)
        files, missing = self.files(root), self.missing(root)
        return [self._verified(path, root) for path in files] if len(missing) < len(files) else []

    def _verified(self, path: Path, root: Path) -> Check:
        if not path.is_file():
            return Check(path, "missing", f"`{self.fetch_command(root)}` downloads it")
        try:
            return Check(path, "sound", self.check(path))
        except Damaged as error:
            return Check(path, "damaged", f"{error.what}; {self.mend(path)}")

    def sound(self, path: Path) -> bool:
        """Whether `path` exists and is valid."""
        return self._verified(path, path.parent).state == "sound"

    def missing(self, root: Path) -> list[Path]:
        """The files that `load` needs and that do not exist."""
        return [path for path in self.files(root) if not path.is_file()]

    def describe(self, data_dir: Folder = None) -> Description:
        """The properties, and whether the files exist."""
        root = data_folder(data_dir)
        files, missing = self.files(root), self.missing(root)
        state = "found" if not missing else "missing" if len(missing) == len(files) else "incomplete"
        where = files[0].parent
        return self._described("embedded" if where == self.embedded else state, where, self.splits)

    def help_missing(self, path: Path, root: Path) -> str:
        """The message for a missing file: which one is expected where, and how to get it."""
        return (
            f"{self.name}: {path} is missing; `{self.fetch_command(root)}` downloads it"
            f" ({self.size}), or put it there by hand, from {self.url}"
        )

    def fetch_command(self, root: Path) -> str:
        """The command that downloads this data set into `root`."""
        return f"altmin data fetch {self.name}" + (f" --data-dir {root}" if root != data_folder() else "")

    def mend(self, path: Path) -> str:
        """What to do about a damaged file, for its error message."""
        if self.embedded is not None:
            return "reinstall altmin" if path.parent == self.embedded else "delete it: altmin embeds a sound copy"
        return f"`altmin data fetch {self.name}` replaces it (with the same --data-dir, if one was given)"

    def _described(self, state: str, where: Path, splits: Mapping[str, int]) -> Description:
        facts = (self.name, self.sample_shape, self.classes, dict(splits))
        return Description(*facts, state, str(where), self.licence, self.url, self.download_size)

    @abstractmethod
    def files(self, root: Path) -> list[Path]:
        """The files that `load` reads, in the data folder `root`; they need not exist."""

    @abstractmethod
    def check(self, path: Path) -> str:
        """Read one file completely and return how it was checked, such as its sha256; raises Damaged if invalid."""

    @abstractmethod
    def fetch(self, data_dir: Folder = None) -> list[Path]:
        """Download the files that are missing or damaged, and return their paths. Valid files are not touched."""

    @abstractmethod
    def _load(self, split: str, root: Path) -> tuple[Tensor, Tensor]:
        """What `load` returns; called with a valid split and with all files there."""


@dataclass(frozen=True, kw_only=True)
class Images(Dataset):
    """Images of bytes: training and validation are cut by `splits` from one sequence, in its order."""

    checksums: Mapping[str, str]
    """Of each file."""

    def _load(self, split: str, root: Path) -> tuple[Tensor, Tensor]:
        first = slice(self.splits["train"])
        images, labels = self._samples(split == "test", root)

        def training() -> list[np.ndarray]:
            return [(images if split != "test" else self._samples(False, root)[0])[first]]

        scale = Scale.remembered((*self.checksums.values(), first.stop), training)
        part = {"train": first, "validation": slice(first.stop, None), "test": slice(None)}[split]
        return scale.apply(images[part]).view(-1, *self.sample_shape), torch.from_numpy(labels[part].astype(np.int64))

    @abstractmethod
    def _samples(self, test: bool, root: Path) -> tuple[np.ndarray, np.ndarray]:
        """Images (n, channels, pixels) and labels (n,), verified: those of the test, or all others."""


def megabytes(size: int) -> str:
    """A number of bytes in MB, or in GB from 1e9 on.

    >>> megabytes(30_878_645), megabytes(2_816_407_858)
    ('31 MB', '2.8 GB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{max(1, round(size / 1e6))} MB"
