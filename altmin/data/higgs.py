"""HIGGS: simulated collisions with 28 features each; the label tells whether a Higgs boson was produced.

The complete file has 11,000,000 rows. A part of it, in a file named by its number of rows, is accepted too; every load
of it gives a `PartialData` warning, so that its results are not mistaken for those of the whole.
"""

import gzip
import hashlib
import re
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from altmin.common.files import check_unpacked, replacing
from altmin.data.base import SPLITS, Damaged, Dataset, Description, Folder, cache_folder, data_folder, digest, download
from altmin.data.standardise import Scale

COMPLETE = "HIGGS.csv.gz"


class PartialData(UserWarning):
    """Warning that the samples are from a file with fewer rows than the data set has."""


@dataclass(frozen=True, kw_only=True)
class Higgs(Dataset):
    """HIGGS. splits, in file order, and sha256 are those of the complete file."""

    sha256: str

    def files(self, root: Path) -> list[Path]:
        """Return the complete file, or the longest partial one if only partial ones are there."""
        folder = root / self.name
        partial = {rows: path for path in folder.glob("HIGGS-*.csv.gz") if (rows := _rows_in_name(path))}
        if not partial or (folder / COMPLETE).is_file():
            return [folder / COMPLETE]
        return [partial[max(partial)]]

    def splits_of(self, path: Path) -> Mapping[str, int]:
        """Return samples per split of a file; the last two tenths of a part are validation and test."""
        rows = _rows_in_name(path)
        if rows is None:
            return self.splits
        return {"train": rows - rows // 10 * 2, "validation": rows // 10, "test": rows // 10}

    def check(self, path: Path) -> None:
        if _rows_in_name(path) is not None:
            self._read(path)
            return
        if (actual := digest(path)) != self.sha256:
            raise Damaged(path, f"it has sha256 {actual}, expected {self.sha256}")

    def describe(self, data_dir: Folder = None) -> Description:
        (path,) = self.files(data_folder(data_dir))
        description = replace(super().describe(data_dir), where=str(path), splits=dict(self.splits_of(path)))
        return description if _rows_in_name(path) is None else replace(description, state="partial")

    def help_missing(self, path: Path, root: Path) -> str:
        """Return the message of `Dataset`, with the name that a partial file must have."""
        return f"{super().help_missing(path, root)}; a partial file goes to {path.parent}/HIGGS-<rows>.csv.gz"

    def fetch(self, data_dir: Folder = None) -> list[Path]:
        path = data_folder(data_dir) / self.name / COMPLETE
        if self._state(path) == "sound":
            return []
        download(self.url, path, self.sha256)
        return [path]

    def _load(self, split: str, root: Path) -> tuple[Tensor, Tensor]:
        (path,) = self.files(root)
        splits = self.splits_of(path)
        if _rows_in_name(path) is not None:
            cut = ", ".join(f"{name} {size:,}" for name, size in splits.items())
            message = f"{path.name} is a part of the data set: {sum(splits.values()):,} rows ({cut})"
            warnings.warn(message, PartialData, stacklevel=4)
        table = self._cached(path)
        start = sum(size for name, size in splits.items() if SPLITS.index(name) < SPLITS.index(split))
        rows = table[start : start + splits[split]]
        scale = Scale.remembered(str(table.filename), lambda: table[: splits["train"], 1:])
        return scale.apply(rows[:, 1:]), torch.from_numpy(rows[:, 0].astype(np.int64))

    def _cached(self, path: Path) -> np.memmap:
        """Return the rows (n, 29) of a text, from the user's cache folder: they are written there when the text is
        first read or has changed."""
        stat = path.stat()
        name = hashlib.sha256(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:16]
        cache = cache_folder() / self.name / f"{name}.npy"
        if not cache.is_file():
            if _rows_in_name(path) is None:
                self.check(path)
            rows = self._read(path)
            with replacing(cache) as file:
                np.save(file, rows)
        array: np.memmap = np.load(cache, mmap_mode="r")
        return array

    def _read(self, path: Path) -> np.ndarray:
        """Return the rows (n, 29) of a text. Damaged if it is malformed or has another number of rows."""
        try:
            if _rows_in_name(path) is not None:
                check_unpacked(path)
            with Console(stderr=True).status(f"reading {path.name}"):
                rows = np.loadtxt(path, np.float32, delimiter=",", ndmin=2)
        except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise Damaged(path, f"it is no table of numbers ({error})") from None
        expected = sum(self.splits_of(path).values()), 1 + self.sample_shape[0]
        if rows.shape != expected:
            raise Damaged(path, f"it has {rows.shape} rows and columns, expected {expected}")
        if not (np.isfinite(rows).all() and np.isin(rows[:, 0], (0, 1)).all()):
            raise Damaged(path, "a row of it is not a label, 0 or 1, and finite numbers")
        return rows


def _rows_in_name(path: Path) -> int | None:
    """Return the number of rows in the name of a partial file; None for the complete one.

    >>> _rows_in_name(Path("HIGGS-49525.csv.gz")), _rows_in_name(Path("HIGGS.csv.gz"))
    (49525, None)
    """
    match = re.fullmatch(r"HIGGS-(\d+)\.csv\.gz", path.name)
    return int(match[1]) if match else None


HIGGS = Higgs(
    name="higgs",
    sample_shape=(28,),
    classes=2,
    splits={"train": 10_000_000, "validation": 500_000, "test": 500_000},
    licence="CC BY 4.0, Whiteson, UCI 280",
    url="https://archive.ics.uci.edu/ml/machine-learning-databases/00280/HIGGS.csv.gz",
    download_size=2_816_407_858,
    sha256="ea302c18164d4e3d916a1e2e83a9a8d07069fa6ebc7771e4c0540d54e593b698",
)
