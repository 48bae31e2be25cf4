"""Tables larger than memory: a folder of Arrow files, mapped into memory and read in an order of blocks.

Each file holds two columns, `x` and `y`, of lists of one length, so that a row's numbers lie together; `index.json`,
which altmin.data.write_shards writes last, says what they hold. Needs pyarrow.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from altmin.common.optional import need
from altmin.data.block_order import BLOCK, WINDOW, BlockOrder, share
from altmin.data.damage import Damaged, digest, expect
from altmin.data.shard_index import read_index
from altmin.data.standardise import Scale


class Part(NamedTuple):
    """The samples and targets of one file, as arrays that are read when they are looked at."""

    x: np.ndarray
    y: np.ndarray


class Shards(Dataset[tuple[Tensor, Tensor]]):
    """The rows start, ..., stop - 1 of a folder that `write_shards` wrote, as a Dataset that reads them when asked.

    With `scale`, which may be that of other rows, samples come as (x - mean) / std in float32; else as they are stored.
    Integer targets come as int64. At most a window of the order of blocks is in memory: files are unmapped after
    that many rows. Opening a folder reads no rows; it raises FileNotFoundError if it has no shards, and Damaged
    if one is missing or not as long as it was written. `verify` reads all.
    """

    def __init__(self, folder: str | Path, *, scale: Scale | None = None, start: int = 0, stop: int | None = None):
        self.folder, self.scale = Path(folder), scale
        index = read_index(self.folder)
        (self.dtype, self.sample_shape), (self.target_dtype, self.target_shape) = index.x, index.y
        self.files, ends = index.files, index.ends
        stop = ends[-1] if stop is None else stop
        if not 0 <= start < stop <= ends[-1]:
            raise ValueError(f"rows {start:,} to {stop:,} are not in {self.folder}, which has {ends[-1]:,} rows")
        self.start, self.stop = start, stop
        self.identity = f"{index.digest[:16]} rows {start} to {stop}"
        """Tells these rows from others by the checksums of their files."""
        self._ends = ends
        self._mapped: dict[int, Part] = {}
        self._read = 0

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        x, y = self.rows([row % len(self)])
        return x[0], y[0]

    def __getitems__(self, rows: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        return list(zip(*self.rows(rows), strict=True))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_mapped": {}, "_read": 0}  # worker processes map the files themselves

    def rows(self, rows: Sequence[int] | np.ndarray | Tensor) -> tuple[Tensor, Tensor]:
        """Samples (n, *sample_shape) and targets (n, *target_shape) of these rows, copied, in their order.

        ValueError for a row that there is not; Damaged if a file is not what the index says.
        """
        numbers = np.asarray(rows).reshape(-1)
        if len(numbers) and numbers.dtype.kind not in "iu":
            raise ValueError(f"rows of {self.folder} are whole numbers, given {numbers.dtype}: {numbers[0]!r:.60}")
        if len(numbers) and not (numbers.min() >= 0 and numbers.max() < len(self)):
            raise ValueError(
                f"rows {numbers.min()} to {numbers.max()} were asked for; {self.folder} has 0 to {len(self) - 1}"
            )
        numbers = numbers.astype(np.int64) + self.start
        x = np.empty((len(numbers), *self.sample_shape), self.dtype)
        y = np.empty((len(numbers), *self.target_shape), self.target_dtype)
        files = np.searchsorted(self._ends, numbers, side="right")
        for file in np.unique(files).tolist():
            own = np.flatnonzero(files == file)
            part, first = self._part(file), self._first(file)
            x[own], y[own] = part.x[numbers[own] - first], part.y[numbers[own] - first]
        self.skipped(len(numbers))
        targets = torch.from_numpy(y)
        samples = torch.from_numpy(x) if self.scale is None else self.scale.apply(x)
        return samples, targets if targets.is_floating_point() else targets.long()

    def order(self, seed: int, epoch: int) -> BlockOrder:
        """The order in which an epoch, counted from 0, sees the rows; it is the same for any number of ranks."""
        return BlockOrder(len(self), seed, epoch)

    def batches(
        self, batch_size: int, seed: int = 0, epoch: int = 0, *, rank: int = 0, ranks: int = 1, start: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """One rank's part of every batch of an epoch, from batch `start` on.

        Batch b of all ranks together holds places b batch_size, ..., (b + 1) batch_size - 1 of the order; the last one
        may be smaller. A rank reads only its own `share`, which is empty where a batch has fewer rows than there are
        ranks.
        """
        for name, value, low in (("batch_size", batch_size, 1), ("ranks", ranks, 1), ("start", start, 0)):
            if value < low:
                raise ValueError(f"{name} of batches is a whole number of at least {low}, given {value}")
        if not 0 <= rank < ranks:
            raise ValueError(f"rank of batches is one of 0 to {ranks - 1}, given {rank}")
        return self._batches(self.order(seed, epoch), batch_size, rank, ranks, start)

    def _batches(
        self, order: BlockOrder, size: int, rank: int, ranks: int, start: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        for place in range(start * size, len(order), size):
            rows = order[place : place + size]
            own = share(rows, rank, ranks)
            yield self.rows(own)
            self.skipped(len(rows) - len(own))

    def parts(self) -> Iterator[Part]:
        """All rows in the order of the table as they are stored, one file at a time; not copied."""
        for file in range(bisect_right(self._ends, self.start), len(self.files)):
            first = self._first(file)
            if first >= self.stop:
                return
            own = slice(max(0, self.start - first), self.stop - first)
            part = self._part(file)
            yield Part(part.x[own], part.y[own])
            self.skipped(len(part.x))

    def statistics(self) -> Scale:
        """Mean and standard deviation of each feature, the second axis, of the rows as they are stored, in one pass."""
        return Scale.streamed(part.x for part in self.parts())

    def verify(self) -> None:
        """Raise Damaged unless every file of the folder has the checksum that it was written with."""
        for each in self.files:
            path = self.folder / each["file"]
            expect(path, "sha256", digest(path, "sha256"), each["sha256"])

    def _first(self, file: int) -> int:
        return self._ends[file - 1] if file else 0

    def skipped(self, rows: int) -> None:
        """Counts rows that were read, here or by other ranks. All files are unmapped after a window of rows: pages that
        were read count as this process's memory until then."""
        self._read += rows
        if self._read >= BLOCK * WINDOW:
            self._mapped, self._read = {}, 0

    def _part(self, file: int) -> Part:
        if file not in self._mapped:
            if len(self._mapped) >= 2 * WINDOW:  # each is an open file, and a block lies in one or two of them
                self._mapped = {}
            self._mapped[file] = self._map(self.folder / self.files[file]["file"], self.files[file]["rows"])
        return self._mapped[file]

    def _map(self, path: Path, rows: int) -> Part:
        pyarrow = arrow()
        columns = [("x", self.dtype, self.sample_shape), ("y", self.target_dtype, self.target_shape)]
        try:
            table = pyarrow.ipc.open_file(pyarrow.memory_map(str(path))).get_batch(0)
            table.validate()
            said = ", ".join(f"{field.name} of {field.type}" for field in table.schema)
        except Exception as error:  # a damaged file may raise anything
            raise Damaged(path, f"it is not a sound Arrow file ({error})") from None
        wanted = pyarrow.schema([(name, list_type(dtype, shape)) for name, dtype, shape in columns])
        if not table.schema.equals(wanted) or len(table) != rows:
            ours = ", ".join(f"{field.name} of {field.type}" for field in wanted)
            raise Damaged(path, f"it has {len(table):,} rows of {said}, and by the index {rows:,} of {ours}")
        lists = [(table[name].flatten(), shape) for name, _, shape in columns]
        if any(values.null_count or len(values) != rows * math.prod(shape) for values, shape in lists):
            raise Damaged(path, "a row of it has no numbers")
        return Part(*(values.to_numpy(zero_copy_only=True).reshape(rows, *shape) for values, shape in lists))


def list_type(dtype: np.dtype, shape: tuple[int, ...]) -> Any:
    """Arrow's type of a row with this number of entries."""
    pyarrow = arrow()
    return pyarrow.list_(pyarrow.from_numpy_dtype(dtype), math.prod(shape))


def arrow() -> Any:
    need("pyarrow.ipc", "higgs", "a file of shards")
    return need("pyarrow")
