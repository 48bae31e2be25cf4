"""Writing a folder of shards, in bounded memory, from arrays or batches."""

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from altmin.data.atomic import replacing
from altmin.data.damage import Hashed
from altmin.data.shard_index import FORMAT, INDEX, shard_name
from altmin.data.shards import Shards, arrow, list_type

ROWS = 1 << 18
"""Rows of a shard: 30 MB of HIGGS."""
BYTES = 1 << 28
"""Bytes of a shard, at most, where wide rows are fewer than `ROWS`."""

Pair = tuple[np.ndarray, np.ndarray]


def write_shards(folder: str | Path, samples: Any, rows_per_shard: int | None = None) -> Shards:
    """Write samples and targets to a folder of Arrow files, uncompressed so that they can be mapped, and open it.

    samples: a pair (x, y) of tensors or arrays, or an iterable of such pairs, all with rows of one shape and type; what
    is held of it is one shard and one batch. rows_per_shard: 262,144 if not given, or fewer that have 256 MB. Every
    file gets its name when it is complete, and the index is the last: an interrupted write leaves no valid folder of
    shards, and can be repeated. ValueError, before the index is written, for a folder that is one already, for batches
    that differ, and for numbers that are not finite.
    """
    folder = Path(folder)
    if rows_per_shard is not None and rows_per_shard < 1:
        raise ValueError(f"rows_per_shard of write_shards is a whole number of at least 1, given {rows_per_shard}")
    if (folder / INDEX).exists():
        raise ValueError(f"{folder} is a folder of shards already; give another, or delete it")
    whole = isinstance(samples, tuple | list) and len(samples) == 2 and all(hasattr(part, "shape") for part in samples)
    given = _checked([samples] if whole else samples)
    files: list[dict[str, Any]] = []
    kinds: dict[str, Any] = {}
    for x, y in _regrouped(given, rows_per_shard):
        path = folder / shard_name(len(files))
        files.append({"file": path.name, "rows": len(x), **_write(path, x, y)})
        kinds = {name: {"dtype": a.dtype.str, "shape": a.shape[1:]} for name, a in (("x", x), ("y", y))}
    if not files:
        raise ValueError("samples of write_shards has no rows")
    index = {"format": FORMAT, "rows": sum(each["rows"] for each in files), **kinds, "shards": files}
    with replacing(folder / INDEX) as file:
        file.write(json.dumps(index, indent=1).encode() + b"\n")
    return Shards(folder)


def _checked(batches: Iterable[Any]) -> Iterator[Pair]:
    """The batches as arrays; ValueError for one that is unlike the first."""
    first = None
    for number, batch in enumerate(batches):
        x, y = (np.asarray(part.detach().cpu() if isinstance(part, Tensor) else part) for part in batch)
        if not x.ndim or not y.ndim or len(x) != len(y):
            raise ValueError(f"batch {number} has samples {x.shape} and targets {y.shape}; give one target a sample")
        if not (_numeric(x) and _numeric(y)):
            raise ValueError(f"batch {number} has {_kind(x)} and {_kind(y)}; shards hold rows of numbers")
        first = first or (_kind(x), _kind(y))
        if (_kind(x), _kind(y)) != first:
            raise ValueError(
                f"batch {number} has samples {_kind(x)} and targets {_kind(y)}, those before {first[0]} and "
                f"{first[1]}; give all rows the same columns and types"
            )
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise ValueError(f"batch {number} holds NaN or infinite values; clean them before writing")
        yield x, y


def _numeric(array: np.ndarray) -> bool:
    """Whether it has rows of numbers of a type that both Arrow and torch have."""
    return array.dtype.kind in "fiu" and array.dtype.itemsize <= 8 and array.dtype.isnative and all(array.shape[1:])


def _kind(array: np.ndarray) -> str:
    """
    >>> _kind(np.zeros((5, 28), np.float32))
    '(28,) of float32'
    """
    return f"{array.shape[1:]} of {array.dtype}"


def _regrouped(batches: Iterable[Pair], given: int | None) -> Iterator[Pair]:
    """The same rows in parts of a given number of rows, or the default; the last one may be smaller."""
    held: list[Pair] = []
    count = 0
    for x, y in batches:
        at = 0
        rows = given or max(1, min(ROWS, BYTES // sum(a.itemsize * math.prod(a.shape[1:]) for a in (x, y))))
        while at < len(x):
            taken = min(rows - count, len(x) - at)
            held.append((x[at : at + taken], y[at : at + taken]))
            count, at = count + taken, at + taken
            if count == rows:
                yield _joined(held)
                held, count = [], 0
    if count:
        yield _joined(held)


def _joined(held: list[Pair]) -> Pair:
    x, y = (np.concatenate(parts) for parts in zip(*held, strict=True))
    return x, y


def _write(path: Path, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """One file with one record batch; its length and its checksum."""
    pyarrow = arrow()
    types = {name: list_type(a.dtype, a.shape[1:]) for name, a in (("x", x), ("y", y))}
    columns = [
        pyarrow.FixedSizeListArray.from_arrays(
            pyarrow.array(np.ascontiguousarray(a).reshape(-1)), types[name].list_size
        )
        for name, a in (("x", x), ("y", y))
    ]
    with replacing(path) as file:
        hashed = Hashed(file)
        with pyarrow.ipc.new_file(pyarrow.PythonFile(hashed, mode="w"), pyarrow.schema(types)) as writer:
            writer.write_batch(pyarrow.record_batch(columns, schema=pyarrow.schema(types)))
        return {"bytes": hashed.size, "sha256": hashed.sha256.hexdigest()}
