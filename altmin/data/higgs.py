"""HIGGS: simulated collisions with 28 features each; the label tells whether a Higgs boson was produced.

The complete file has 11,000,000 rows. A part of it, in a file named by its number of rows, is accepted too; every load
of it gives a `PartialData` warning, so that its results are not mistaken for those of the whole.
"""

import re
import shutil
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from altmin.data.atomic import locked, replacing
from altmin.data.base import SPLITS, Dataset, Description, Folder
from altmin.data.csv_table import csv_batches
from altmin.data.damage import BLOCK, Damaged, Hashed, digest, expect, sha256
from altmin.data.download import Refused, download
from altmin.data.folders import cache_folder, data_folder
from altmin.data.progress import progress
from altmin.data.shard_index import INDEX
from altmin.data.shard_writer import write_shards
from altmin.data.shards import Shards
from altmin.data.standardise import Scale

COMPLETE = "HIGGS.csv.gz"


class PartialData(UserWarning):
    """The samples are from a file with fewer rows than the data set has."""


@dataclass(frozen=True, kw_only=True)
class Higgs(Dataset):
    """`splits` are those of the complete file in file order: training, validation, test."""

    sha256: str
    """Of the complete gzipped file."""
    zip_url: str
    """The same file in a zip archive, for when `url` is refused."""

    @property
    def rows(self) -> int:
        return sum(self.splits.values())

    def files(self, root: Path) -> list[Path]:
        """The complete file, or the longest partial one if only partial ones are there."""
        folder = root / self.name
        partial = {rows: path for path in folder.glob("HIGGS-*.csv.gz") if (rows := _rows_in_name(path))}
        if not partial or (folder / COMPLETE).is_file():
            return [folder / COMPLETE]
        return [partial[max(partial)]]

    def splits_of(self, rows: int) -> Mapping[str, int]:
        """Samples per split of a file with `rows` rows; the last two tenths of a part are validation and test."""
        if rows == self.rows:
            return self.splits
        tenth = rows // 10
        return {"train": rows - 2 * tenth, "validation": tenth, "test": tenth}

    def check(self, path: Path) -> str:
        rows = _rows_in_name(path)
        if rows is None:
            expect(path, "sha256", digest(path, "sha256"), self.sha256)
            return f"sha256 {self.sha256}"
        for _ in self._batches(path, rows):
            pass
        return f"{rows:,} rows as its name says; partial files have no published checksum"

    def describe(self, data_dir: Folder = None) -> Description:
        (path,) = self.files(data_folder(data_dir))
        rows = _rows_in_name(path)
        state = "partial" if rows else "found" if path.is_file() else "missing"
        return self._described(state, path, self.splits_of(rows or self.rows))

    def help_missing(self, path: Path, root: Path) -> str:
        """As in `Dataset`, with the name that a partial file must have."""
        return f"{super().help_missing(path, root)}; a partial file goes to {path.parent}/HIGGS-<rows>.csv.gz"

    def mend(self, path: Path) -> str:
        if _rows_in_name(path):
            return f"replace it with a sound copy, or `altmin data fetch {self.name}` gets the complete file"
        return f"{super().mend(path)}; a partial file must be named HIGGS-<rows>.csv.gz"

    def fetch(self, data_dir: Folder = None) -> list[Path]:
        target = data_folder(data_dir) / self.name / COMPLETE
        if self.sound(target):
            return []
        archive = target.with_name("higgs.zip")
        if not archive.is_file():
            try:
                download(self.url, target, self._check_complete, self.download_size)
                return [target]
            except Refused:
                limit = self.download_size + self.download_size // 100 + BLOCK
                download(self.zip_url, archive, partial(self._unzip, target=target), limit)
        else:
            self._unzip(archive, target)
        archive.unlink()
        return [target]

    def _check_complete(self, path: Path) -> None:
        expect(path, "sha256", digest(path, "sha256"), self.sha256)

    def _unzip(self, archive: Path, target: Path) -> None:
        """Copy the one member to `target` and check it by its own sha256; none is published for the archive."""
        try:
            with zipfile.ZipFile(archive) as zipped, zipped.open(COMPLETE) as member, replacing(target) as file:
                if (size := zipped.getinfo(COMPLETE).file_size) > self.download_size:
                    raise Damaged(archive, f"it unpacks to {size:,} bytes, expected {self.download_size:,}")
                hashed = Hashed(file)
                shutil.copyfileobj(member, hashed, BLOCK)
                expect(archive, "sha256", hashed.sha256.hexdigest(), self.sha256)
        except (Damaged, zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
            what = error.what if isinstance(error, Damaged) else f"it cannot be unpacked ({error})"
            raise Damaged(archive, what, "delete it and fetch again") from None

    def _load(self, split: str, root: Path) -> tuple[Tensor, Tensor]:
        (path,) = self.files(root)
        partial = _rows_in_name(path)
        rows = partial or self.rows
        splits = self.splits_of(rows)
        if partial:
            cut = ", ".join(f"{name} {size:,}" for name, size in splits.items())
            message = f"{path.name} is a part of the data set: {rows:,} of {self.rows:,} rows ({cut})"
            warnings.warn(message, PartialData, stacklevel=4)
        if min(splits.values()) < 1:
            raise ValueError(f"{path} has {rows} rows, too few to be split; 10 are the least")
        table = self._cached(path, rows)
        start = sum(size for name, size in splits.items() if SPLITS.index(name) < SPLITS.index(split))
        stop = start + splits[split]
        training = Shards(table.folder, stop=splits["train"])
        scale = Scale.remembered(training.identity, lambda: (part.x for part in training.parts()))
        return Shards(table.folder, scale=scale, start=start, stop=stop).rows(np.arange(stop - start))

    def _cached(self, path: Path, rows: int) -> Shards:
        """The rows of a text as shards in the user's cache folder, which every load verifies. They are written when
        the text is first read or has changed, or, with a RuntimeWarning, if they are damaged; one process writes them,
        and others wait."""
        stat = path.stat()
        stem = f"{path.name.removesuffix('.csv.gz')}.{sha256(str(path.resolve()).encode())[:12]}"
        folder = cache_folder() / self.name / f"{stem}.{stat.st_size}-{stat.st_mtime_ns}"
        with suppress(Damaged, OSError):
            return _verified(folder)
        with locked(folder.with_name(f"{stem}.lock")):
            return self._written(path, rows, folder, stem)

    def _written(self, path: Path, rows: int, folder: Path, stem: str) -> Shards:
        try:
            return _verified(folder)
        except FileNotFoundError:
            pass
        except (Damaged, OSError) as error:
            warnings.warn(f"the cache {folder} is made again from {path}: {error}", RuntimeWarning, stacklevel=2)
            (folder / INDEX).unlink()
        if _rows_in_name(path) is None:
            self._check_complete(path)
        for old in folder.parent.glob(f"{stem}.*-*"):
            shutil.rmtree(old, ignore_errors=True)
        return write_shards(folder, self._batches(path, rows))

    def _batches(self, path: Path, rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The features and labels of a text, a block at a time. Damaged if it is malformed or has another number of
        rows."""
        done, size = 0, path.stat().st_size
        with progress(f"reading {path.name}") as report:
            for x, y in csv_batches(path):
                if x.shape[1:] != self.sample_shape or not (np.isfinite(x).all() and np.isin(y, (0, 1)).all()):
                    raise Damaged(
                        path, f"in rows {done + 1:,} to {done + len(y):,} one is not a label, 0 or 1, and 28 numbers"
                    )
                done += len(y)
                if done > rows:
                    raise Damaged(path, f"it has {done:,} or more rows, expected {rows:,}")
                report(size * done // rows, size)
                yield x, y
        if done != rows:
            raise Damaged(path, f"it has {done:,} rows, expected {rows:,}")


def _verified(folder: Path) -> Shards:
    found = Shards(folder)
    found.verify()
    return found


def _rows_in_name(path: Path) -> int | None:
    """The number of rows in the name of a partial file; None for the complete one.

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
    zip_url="https://archive.ics.uci.edu/static/public/280/higgs.zip",
    download_size=2_816_407_858,
    sha256="ea302c18164d4e3d916a1e2e83a9a8d07069fa6ebc7771e4c0540d54e593b698",
)
