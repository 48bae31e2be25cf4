"""The base class of data sets: properties, files, and the errors for missing or damaged files."""

import gzip
import hashlib
import os
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.hub
from torch import Tensor

from altmin.common.errors import unknown
from altmin.common.files import LARGE
from altmin.data.standardise import Scale

SPLITS = ("train", "validation", "test")

Folder = str | os.PathLike[str] | None


class Damaged(ValueError):
    """A data file that does not hold what was published. The message names it."""

    def __init__(self, path: Path, what: str):
        super().__init__(f"{path} is damaged: {what}; delete it, and fetch it again unless altmin embeds it")
        self.path, self.what = path, what


@dataclass(frozen=True)
class Description:
    """Properties of a data set, available without reading its samples.

    splits: the number of samples of each split, those of a partial file if only such a file was found. state:
    `embedded`, `found`, `incomplete` (some files are missing), `partial` (fewer rows) or `missing`. where: the folder
    of the files, or where it is expected. download_size: in bytes; 0 where nothing need be downloaded.
    """

    name: str
    sample_shape: tuple[int, ...]
    classes: int
    splits: dict[str, int]
    state: str
    where: str
    licence: str
    source: str
    download_size: int


@dataclass(frozen=True, kw_only=True)
class Dataset(ABC):
    """A data set: its properties are attributes, `load` reads its samples. No file is opened before that.

    embedded: a folder within the package, used for files which the data folder does not have. tokens: whether samples
    are tokens, int64 from 0 to classes - 1, and labels the tokens that follow them.
    """

    name: str
    sample_shape: tuple[int, ...]
    classes: int
    splits: Mapping[str, int]
    licence: str
    url: str
    download_size: int = 0
    embedded: Path | None = None
    tokens: bool = False

    def load(self, split: str, data_dir: Folder = None) -> tuple[Tensor, Tensor]:
        """Return samples (n, *sample_shape), float32 and standardised by the training split, and labels (n,), int64.

        For a data set of tokens both are int64 of shape (n, *sample_shape). split: one of `SPLITS`. data_dir: see
        `data_folder`. Nothing is downloaded. ValueError for an unknown split, FileNotFoundError if a file is missing,
        Damaged if one is invalid.
        """
        if split not in SPLITS:
            raise unknown("split", split, SPLITS)
        root = data_folder(data_dir)
        if missing := [path for path in self.files(root) if not path.is_file()]:
            raise FileNotFoundError(self.help_missing(missing[0], root))
        return self._load(split, root)

    def verify(self, data_dir: Folder = None) -> dict[Path, str]:
        """Compare every file with its checksum: by path "sound", "missing" or "damaged"."""
        return {path: self._state(path) for path in self.files(data_folder(data_dir))}

    def fetch(self, data_dir: Folder = None) -> list[Path]:
        """Download the files that are missing or damaged, and return their paths. Valid files are not touched."""
        wanted = [path for path, state in self.verify(data_dir).items() if state != "sound"]
        if wanted and self.download_size:
            self._fetch(wanted)
            for path in wanted:
                self.check(path)
        return wanted if self.download_size else []

    def describe(self, data_dir: Folder = None) -> Description:
        """Return the properties, and whether the files exist."""
        files = self.files(data_folder(data_dir))
        there = [path.is_file() for path in files]
        state = "found" if all(there) else "incomplete" if any(there) else "missing"
        state = "embedded" if files[0].parent == self.embedded else state
        facts = (self.name, self.sample_shape, self.classes, dict(self.splits), state, str(files[0].parent))
        return Description(*facts, self.licence, self.url, self.download_size)

    def help_missing(self, path: Path, root: Path) -> str:
        """Return the message for a missing file: which one is expected where, and how to get it."""
        there = "" if root == data_folder() else f" --data-dir {root}"
        return (
            f"{self.name}: {path} is missing; `altmin data fetch {self.name}{there}` downloads it"
            f" ({megabytes(self.download_size)}), or put it there by hand, from {self.url}"
        )

    def _state(self, path: Path) -> str:
        try:
            self.check(path)
        except FileNotFoundError:
            return "missing"
        except Damaged:
            return "damaged"
        return "sound"

    @abstractmethod
    def files(self, root: Path) -> list[Path]:
        """Return the files that `load` reads, in the data folder `root`; they need not exist."""

    @abstractmethod
    def check(self, path: Path) -> None:
        """Read one file completely and compare its checksum; raises Damaged if it is invalid."""

    @abstractmethod
    def _load(self, split: str, root: Path) -> tuple[Tensor, Tensor]:
        """Return what `load` returns; called with a valid split and with all files there."""

    def _fetch(self, wanted: list[Path]) -> None:
        """Download these files."""
        for path in wanted:
            download(self.url + path.name, path)


@dataclass(frozen=True, kw_only=True)
class Images(Dataset):
    """Images of bytes: training and validation are cut by `splits` from one sequence, in its order.

    checksums: of the content of each file, by its name without the last suffix.
    """

    checksums: Mapping[str, str]

    def _load(self, split: str, root: Path) -> tuple[Tensor, Tensor]:
        first = slice(self.splits["train"])
        images, labels = self._samples(split == "test", root)

        def training() -> np.ndarray:
            return (images if split != "test" else self._samples(False, root)[0])[first]

        scale = Scale.remembered((*self.checksums.values(), first.stop), training)
        part = {"train": first, "validation": slice(first.stop, None), "test": slice(None)}[split]
        return scale.apply(images[part]).view(-1, *self.sample_shape), torch.from_numpy(labels[part].astype(np.int64))

    @abstractmethod
    def _samples(self, test: bool, root: Path) -> tuple[np.ndarray, np.ndarray]:
        """Return images (n, channels, pixels) and labels (n,), verified: those of the test, or all others."""


def cache_folder() -> Path:
    """Return the user's cache folder: `$XDG_CACHE_HOME/altmin`, else `~/.cache/altmin`. It need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "altmin"


def data_folder(data_dir: Folder = None) -> Path:
    """Return the data folder: `data_dir`, else `$ALTMIN_DATA`, else the user's cache folder. It need not exist."""
    folder = data_dir or os.environ.get("ALTMIN_DATA")
    return Path(folder).expanduser() if folder else cache_folder()


def download(url: str, path: Path, sha256: str | None = None) -> None:
    """Download `url` to `path`. OSError, which says where to put the file by hand, without a network; ValueError if the
    file has another checksum. Nothing is left then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        torch.hub.download_url_to_file(url, str(path), hash_prefix=sha256, progress=sys.stderr.isatty())
    except OSError as error:
        raise OSError(f"cannot download {url} ({error}); get the file elsewhere and put it at {path}") from None
    except RuntimeError as error:
        raise ValueError(f"{url} gave another file than the published one: {error}") from None


def digest(path: Path) -> str:
    """Return the sha256 of a file, which is read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verified(path: Path, checksum: str, algorithm: str = "sha256") -> bytes:
    """Return the content of a file, unpacked if its name ends in .gz. Raises Damaged unless it has this checksum."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            content = file.read(LARGE)  # of a file that unpacks to more, a part with another checksum
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Damaged(path, f"it cannot be unpacked ({error})") from None
    actual = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
    if actual != checksum:
        raise Damaged(path, f"its content has {algorithm} {actual}, expected {checksum}")
    return content


def megabytes(size: int) -> str:
    """Return a number of bytes in MB, or in GB from 1e9 on.

    >>> megabytes(30_878_645), megabytes(2_816_407_858)
    ('31 MB', '2.8 GB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{max(1, round(size / 1e6))} MB"
