"""The order in which an epoch sees the rows of a large table: shuffled, but read from disk in long pieces.

A permutation of all rows would take 8 bytes a row, and a table that is not in memory would be read row by row from
anywhere. Instead the table is cut into blocks of consecutive rows; the blocks are shuffled; and so are the rows inside
each window of many blocks. Only the order of the blocks and one window are held.
"""

import hashlib

import numpy as np

BLOCK = 4096
"""Consecutive rows that stay in one window."""
WINDOW = 64
"""Blocks in a window: 262,144 rows. A table with no more rows than that is shuffled uniformly."""


class BlockOrder:
    """The order of epoch `epoch` (from 0), a permutation of 0, ..., rows - 1: a function of rows, seed and epoch alone.

    With pi a random permutation of the blocks, window w holds the blocks pi(w k), ..., pi(w k + k - 1), k = `window`,
    and its rows are in an order drawn for (seed, epoch, w). Any position can be computed without the earlier ones.
    """

    def __init__(self, rows: int, seed: int, epoch: int, block: int = BLOCK, window: int = WINDOW):
        self.rows, self.seed, self.epoch, self.block, self.window = rows, seed, epoch, block, window
        self.blocks = self._random("blocks").permutation(-(-rows // block))
        sizes = np.minimum(block, rows - self.blocks * block)
        self.ends = np.append(np.cumsum(sizes)[window - 1 : -1 : window], rows)
        self._held: tuple[int, np.ndarray] | None = None

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, places: slice) -> np.ndarray:
        """The rows at consecutive positions of the order, int64."""
        start, stop, step = places.indices(self.rows)
        assert step == 1, "places are consecutive"
        parts = [np.empty(0, np.int64)]
        while start < stop:
            number = int(np.searchsorted(self.ends, start, side="right"))
            first = 0 if number == 0 else int(self.ends[number - 1])
            last = min(stop, int(self.ends[number]))
            parts.append(self._window(number)[start - first : last - first])
            start = last
        return np.concatenate(parts)

    def _window(self, number: int) -> np.ndarray:
        """All rows of a window in their order; the last one is cached."""
        if self._held is None or self._held[0] != number:
            blocks = self.blocks[number * self.window : (number + 1) * self.window]
            rows = (blocks[:, None] * self.block + np.arange(self.block)).ravel()
            self._held = number, self._random(f"window {number}").permutation(rows[rows < self.rows])
        return self._held[1]

    def _random(self, what: str) -> np.random.Generator:
        key = hashlib.sha256(f"{self.seed} {self.epoch} {what}".encode()).digest()
        return np.random.default_rng(int.from_bytes(key, "big"))


def share(rows: np.ndarray, rank: int, ranks: int) -> np.ndarray:
    """Those of a batch's rows that one of several ranks takes, as `torch.tensor_split` divides them: consecutive ones,
    the first ranks one more where they do not come out even."""
    return np.array_split(rows, ranks)[rank]
