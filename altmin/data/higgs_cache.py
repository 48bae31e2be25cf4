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
from typing import Any, cast

import numpy as np

from altmin.common.optional import need
from altmin.data.atomic import replacing
from altmin.data.csv_table import float_columns
from altmin.data.damage import Damaged, Hashed, expect
from altmin.data.folders import cache_folder
from altmin.data.progress import progress

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
    pyarrow = need("pyarrow", "higgs", "reading HIGGS for the first time")
    done = 0
    with progress(f"reading {source.name}") as report, source.open("rb") as raw, replacing(target) as out:
        hashed, size = Hashed(raw), source.stat().st_size
        made = Hashed(out)
        made.sha256 = _digest(target)
        made.write(_header(rows))
        try:
            for block in _blocks(pyarrow, hashed):
                if not (np.isfinite(block).all() and np.isin(block[:, 0], (0, 1)).all()):
                    raise Damaged(source, _bad_row(source, done) or "it has rows that are not numbers")
                done += len(block)
                report(hashed.size, size)
                if done > rows:
                    raise Damaged(source, f"it has {done:,} or more rows, expected {rows:,}")
                made.write(block.tobytes())
        except pyarrow.ArrowInvalid as error:
            raise Damaged(source, _bad_row(source, done) or str(error)) from None
        except OSError as error:
            if error.errno is not None:  # the disc, not the content
                raise
            raise Damaged(source, f"it is not a sound gzip file ({error})") from None
        if sha256 is not None:
            while hashed.read(BLOCK):  # what the gzip reader has left
                pass
            expect(source, "sha256", hashed.sha256.hexdigest(), sha256)
        if done != rows:
            raise Damaged(source, f"it has {done:,} rows, expected {rows:,}")
        out.write(made.sha256.digest())


def _blocks(pyarrow: Any, raw: Hashed) -> Any:
    """Arrays (some rows, 29) of float32, one block of the text after the other."""
    stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, mode="r"), "gzip")
    return (np.stack(columns, axis=1) for columns in float_columns(stream, COLUMNS, block_size=BLOCK))


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
