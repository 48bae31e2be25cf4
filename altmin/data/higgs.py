"""HIGGS: simulated collisions with 28 features each; the label tells whether a Higgs boson was produced.

The complete file has 11,000,000 rows. A part of it, in a file named by its number of rows, is accepted too; every load
of it gives a `PartialData` warning, so that its results are not mistaken for those of the whole.
"""

import hashlib
import re
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from altmin.data.atomic import replacing
from altmin.data.base import Dataset, Description, Folder
from altmin.data.damage import BLOCK, Damaged, digest, expect
from altmin.data.download import Refused, download
from altmin.data.folders import data_folder
from altmin.data.gunzip import Limited, unpacking
from altmin.data.higgs_cache import LONGEST_LINE, cached_rows
from altmin.data.standardise import Scale, labels

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
        found = _count_rows(path, rows)
        if found != rows:
            raise Damaged(path, f"it has {found:,}{' or more' if found > rows else ''} rows, and {rows:,} by its name")
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
                download(self.zip_url, archive, _check_zip, self.download_size + self.download_size // 100 + BLOCK)
        self._unzip(archive, target)
        archive.unlink()
        return [target]

    def _check_complete(self, path: Path) -> None:
        expect(path, "sha256", digest(path, "sha256"), self.sha256)

    def _unzip(self, archive: Path, target: Path) -> None:
        """Copy the one member to `target` and check it by its own sha256; none is published for the archive."""
        sha256 = hashlib.sha256()
        try:
            with (
                zipfile.ZipFile(archive) as zipped,
                zipped.open(COMPLETE) as member,
                replacing(target) as file,
            ):
                content = Limited(member, archive, self.download_size)
                while block := content.read(BLOCK):
                    sha256.update(block)
                    file.write(block)
                expect(archive, "sha256", sha256.hexdigest(), self.sha256)
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
        table = cached_rows(path, rows, None if partial else self.sha256)
        train, validation = splits["train"], splits["validation"]
        bounds = {
            "train": (0, train),
            "validation": (train, train + validation),
            "test": (train + validation, rows),
        }
        chosen = table[slice(*bounds[split])]
        scale = Scale.remembered((table.filename, train), lambda: table[:train, 1:])
        return scale.apply(chosen[:, 1:]), labels(chosen[:, 0])


def _rows_in_name(path: Path) -> int | None:
    """The number of rows in the name of a partial file; None for the complete one.

    >>> _rows_in_name(Path("HIGGS-49525.csv.gz")), _rows_in_name(Path("HIGGS.csv.gz"))
    (49525, None)
    """
    match = re.fullmatch(r"HIGGS-(\d+)\.csv\.gz", path.name)
    return int(match[1]) if match else None


def _check_zip(path: Path) -> None:
    """Raise Damaged unless the archive can be opened and has the member."""
    try:
        with zipfile.ZipFile(path) as members:
            members.getinfo(COMPLETE)
    except (zipfile.BadZipFile, KeyError) as error:
        raise Damaged(path, f"it is not the archive expected ({error})") from None


def _count_rows(path: Path, most: int) -> int:
    """The lines of a gzip file that are not blank; reading stops after more than `most` of them.

    Raises Damaged if it is unsound, or if it has lines that cannot be rows.
    """
    rows, rest = 0, b""
    with unpacking(path) as file:
        content = Limited(file, path, (most + 1) * LONGEST_LINE)
        while rows <= most and (block := content.read(BLOCK)):
            *lines, rest = (rest + block).split(b"\n")
            rows += sum(1 for line in lines if line.strip())
            if len(rest) > LONGEST_LINE:
                raise Damaged(path, f"it has a line of more than {LONGEST_LINE:,} bytes after {rows:,} rows")
    return rows + bool(rest.strip())


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
