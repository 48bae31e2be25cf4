"""The index of a folder of shards: which files there are, and how many rows of what kind each of them holds."""

import json
import math
import re
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from altmin.data.damage import Damaged, sha256

INDEX = "index.json"
FORMAT = "altmin shards 1"
LARGEST = 1 << 26
"""Bytes of an index, at most: hundreds of thousands of shards."""
AGAIN = "write the shards again"


class Column(NamedTuple):
    """The type and the shape of what a row has in a column."""

    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


class Index(NamedTuple):
    """What an index says. files: a dict for each shard, with file, rows, bytes and sha256. ends: the number of rows up
    to the end of each shard. digest: of the index itself, which has the checksums of all files."""

    x: Column
    y: Column
    files: list[dict[str, Any]]
    ends: list[int]
    digest: str


def shard_name(number: int) -> str:
    return f"shard-{number:05}.arrow"


def read_index(folder: Path) -> Index:
    """The index of a folder. FileNotFoundError if there is none; Damaged, a ValueError, unless it is one that
    `write_shards` can have written, and every file is there, as long as it says, and large enough for its rows."""
    path = folder / INDEX
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no {INDEX}; give a folder that altmin.data.write_shards wrote")
    if path.stat().st_size > LARGEST:
        raise Damaged(path, f"it has {path.stat().st_size:,} bytes, expected at most {LARGEST:,}", AGAIN)
    content = path.read_bytes()
    try:
        found = json.loads(content)
        if found["format"] != FORMAT:
            raise ValueError(f"its format is {found['format']!r:.60}, expected {FORMAT!r}")
        x, y, files = _column(found, "x"), _column(found, "y"), found["shards"]
        ends = list(accumulate(_rows(folder, number, each, x.bytes + y.bytes) for number, each in enumerate(files)))
        if not ends or _whole("rows", found["rows"]) != ends[-1]:
            raise ValueError(f"it has {found['rows']} rows, and its shards have {ends[-1] if ends else 0}")
    except Damaged:
        raise
    except (KeyError, TypeError, ValueError, RecursionError, MemoryError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise Damaged(path, f"it is no index of shards: {what}", AGAIN) from None
    return Index(x, y, files, ends, sha256(content))


def _column(found: dict[str, Any], name: str) -> Column:
    text, shape = found[name]["dtype"], tuple(_whole(f"the shape of {name}", size) for size in found[name]["shape"])
    if not isinstance(text, str) or not re.fullmatch("[<>|][fiu][1248]", text) or not np.dtype(text).isnative:
        raise ValueError(
            f"the dtype of {name} is {text!r:.60}, expected one of numbers, such as {np.dtype('f4').str!r}"
        )
    np.empty((0, *shape), text)  # raises for more axes than an array has
    return Column(np.dtype(text), shape)


def _rows(folder: Path, number: int, each: dict[str, Any], row: int) -> int:
    """The number of rows of a shard, whose rows have `row` bytes each. Files outside the folder are none of it."""
    name, rows, size = shard_name(number), _whole("rows of a shard", each["rows"]), _whole("bytes", each["bytes"])
    if each["file"] != name:
        raise ValueError(f"the file of shard {number} is {each['file']!r:.60}, expected {name!r}")
    if not re.fullmatch("[0-9a-f]{64}", each["sha256"]):
        raise ValueError(f"the sha256 of {name} is {each['sha256']!r:.60}, expected 64 hexadecimal digits")
    path = folder / name
    if not path.is_file():
        raise Damaged(path, "it is missing")
    if path.stat().st_size != size:
        raise Damaged(path, f"it has {path.stat().st_size:,} bytes, expected {size:,}")
    if rows * row > size:
        raise ValueError(f"{name} has {rows:,} rows of {row:,} bytes, which do not fit into its {size:,} bytes")
    return rows


def _whole(what: str, value: Any) -> int:
    """`value`, if it is a whole number of at least 1 that a file can have."""
    if type(value) is not int or not 0 < value < 1 << 63:
        raise ValueError(f"{what} is {value!r:.60}, expected a whole number from 1 to 2^63 - 1")
    return value
