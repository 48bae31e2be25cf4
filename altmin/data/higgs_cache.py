"""The HIGGS text, converted once into an array on the disc that later loads map into memory.

The text is streamed, so the memory needed does not grow with the file. The array gets its name only when it is
complete, so a conversion that is killed leaves no array; and the name has the size and the time of the text, so a
changed text is converted again. It ends in a digest of its name and of all that is before, which every load checks: an
array that is damaged, or another one put under its name, is never used.
"""

import gzip
import hashlib
import io
import warnings
import zlib
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from altmin.data.atomic import replacing
from altmin.data.damage import Damaged, expect
from altmin.data.folders import cache_folder
from altmin.data.progress import Report, progress

COLUMNS = 29  # the label, then 28 features
TYPE = np.dtype("<f4")
BLOCK = 1 << 20  # bytes of text at a time; the reader holds some dozens of them
LONGEST_LINE = 1 << 12  # a row of 29 numbers with 18 digits has some 750 bytes
DIGEST = hashlib.sha256().digest_size


def cached_rows(source: Path, rows: int, sha256: str | None = None) -> np.memmap:
    """The rows (rows, 29) of a gzipped HIGGS text, mapped from the cache, which is made if need be.

    The cache is in the user's cache folder; older ones of the same text are deleted. One that is not sound is made
    again, with a RuntimeWarning. Raises Damaged if the text is malformed or has another number of rows or, if one is
    given, another sha256; ImportError if a cache has to be made and pyarrow is missing.
    """
    stat = source.stat()
    where = hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:12]  # texts of one name in several folders
    stem = f"{source.name.removesuffix('.csv.gz')}.{where}"
    folder = cache_folder() / source.parent.name
    target = folder / f"{stem}.{stat.st_size}-{stat.st_mtime_ns}.npy"
    try:
        return _map(target, rows)
    except FileNotFoundError:
        pass
    except (Damaged, OSError) as error:
        what = error.what if isinstance(error, Damaged) else error.strerror
        warnings.warn(f"the cache {target} is made again from {source}: {what}", RuntimeWarning, stacklevel=2)
    _convert(source, target, rows, sha256)
    for old in folder.glob(f"{stem}.*.npy"):
        if old != target:
            with suppress(OSError):
                old.unlink()
    return _map(target, rows)


def _map(target: Path, rows: int) -> np.memmap:
    """The array in the cache `target`. Raises Damaged unless it has so many rows and its digest is right."""
    header = _header(rows)
    end = len(header) + rows * COLUMNS * TYPE.itemsize
    size = target.stat().st_size
    if size != end + DIGEST:
        raise Damaged(target, f"it has {size:,} bytes, expected {end + DIGEST:,}")
    whole = np.memmap(target, np.uint8, "r")
    if whole[: len(header)].tobytes() != header:
        raise Damaged(target, f"it does not start as an array of {rows:,} rows does")
    digest = _digest(target)
    digest.update(whole[:end].data)
    if digest.digest() != whole[end:].tobytes():
        raise Damaged(target, "its content is not what was written")
    return cast(np.memmap, whole[len(header) : end].view(TYPE).reshape(rows, COLUMNS))


def _header(rows: int) -> bytes:
    """What numpy's file of an array with so many rows starts with."""
    stream = io.BytesIO()
    shape = {"descr": TYPE.str, "fortran_order": False, "shape": (rows, COLUMNS)}
    np.lib.format.write_array_header_1_0(stream, shape)
    return stream.getvalue()


def _digest(target: Path) -> "hashlib._Hash":
    """The digest of a cache, to be updated with its header and its rows; its name is in it already."""
    return hashlib.sha256(target.name.encode())


def _convert(source: Path, target: Path, rows: int, sha256: str | None) -> None:
    """Stream the text into `target`, and check the sha256 of the bytes read, if one is given."""
    pyarrow = _pyarrow()
    done = 0
    with progress(f"reading {source.name}") as report, source.open("rb") as raw, replacing(target) as out:
        hashed = _Hashed(raw, source.stat().st_size, report)
        digest = _digest(target)

        def write(content: bytes) -> None:
            digest.update(content)
            out.write(content)

        write(_header(rows))
        try:
            for block in _blocks(pyarrow, hashed):
                if not (np.isfinite(block).all() and np.isin(block[:, 0], (0, 1)).all()):
                    raise Damaged(source, _bad_row(source, done) or "it has rows that are not numbers")
                done += len(block)
                if done > rows:
                    raise Damaged(source, f"it has {done:,} or more rows, expected {rows:,}")
                write(block.tobytes())
        except pyarrow.ArrowInvalid as error:
            raise Damaged(source, _bad_row(source, done) or str(error)) from None
        except OSError as error:
            if error.errno is not None:  # the disc, not the content
                raise
            raise Damaged(source, f"it is not a sound gzip file ({error})") from None
        if sha256 is not None:
            expect(source, "sha256", hashed.finish(), sha256)
        if done != rows:
            raise Damaged(source, f"it has {done:,} rows, expected {rows:,}")
        out.write(digest.digest())


def _blocks(pyarrow: Any, raw: "_Hashed") -> Any:
    """Arrays (some rows, 29) of float32, one block of the text after the other."""
    from pyarrow import csv

    columns = [str(index) for index in range(COLUMNS)]
    stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, mode="r"), "gzip")
    types = csv.ConvertOptions(column_types=dict.fromkeys(columns, pyarrow.float32()), null_values=[])
    options = csv.ReadOptions(column_names=columns, block_size=BLOCK)
    for batch in csv.open_csv(stream, read_options=options, convert_options=types):
        yield np.stack([column.to_numpy(zero_copy_only=False) for column in batch.columns], axis=1)


def _bad_row(source: Path, sound: int) -> str | None:
    """What is wrong with the first malformed row after the first `sound` ones, by a slow second look."""
    with (
        gzip.open(source, "rt", encoding="utf-8", errors="replace") as file,
        suppress(EOFError, OSError, zlib.error),
    ):
        lines = iter(lambda: file.readline(LONGEST_LINE), "")
        for number, line in enumerate(islice(lines, sound, None), sound + 1):
            if len(line) == LONGEST_LINE:
                return f"line {number:,} has more than {LONGEST_LINE:,} characters"
            if not line.strip():
                continue
            fields = line.rstrip("\r\n").split(",")
            if len(fields) != COLUMNS:
                return f"line {number:,} has {len(fields)} columns, expected {COLUMNS}"
            for column, field in enumerate(fields, 1):
                try:
                    fine = np.isfinite(float(field)) and (column > 1 or float(field) in (0, 1))
                except ValueError:
                    fine = False
                if not fine:
                    return f"line {number:,}, column {column} is {field[:40]!r}, expected {_kind(column)}"
    return None


def _kind(column: int) -> str:
    return "a label, 0 or 1" if column == 1 else "a number"


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise ImportError("reading HIGGS for the first time needs pyarrow: pip install 'altmin[higgs]'") from None
    return pyarrow


class _Hashed:
    """A binary file that computes the sha256 of what is read from it, and reports how much that is."""

    closed = False

    def __init__(self, raw: BinaryIO, size: int, report: Report):
        self.raw, self.size, self.report = raw, size, report
        self.sha256 = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self.raw.read(size)
        self.sha256.update(block)
        self.report(self.raw.tell(), self.size)
        return block

    def finish(self) -> str:
        """The checksum of the whole file; reads what the gzip reader has left."""
        while self.read(1 << 20):
            pass
        return self.sha256.hexdigest()

    def close(self) -> None:
        self.closed = True
