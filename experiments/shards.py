"""The figures of "Tables larger than memory" in docs/data.md: `python experiments/shards.py`, with --rows 11000000 for
the size of HIGGS; then `python experiments/shards.py --table`.

A table of random numbers with 28 float32 features and a label is written to shards, its statistics are taken, and an
epoch of batches of 1,000 is read: by one rank, by the first of four, and once with files that the operating system has
been told to forget. Each is done by a process of its own with one thread, of which the most memory ever resident is
taken, mapped files included, and what it had before it began. One line of benchmarks/shards.jsonl for each.
--folder DIR: where the shards are put, and deleted at the end; a temporary folder if not given.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from common import HERE, Row, fill, read, table, write

from altmin.cli import output
from altmin.data import Shards, write_shards
from altmin.data.shards import arrow

RESULTS = HERE / "benchmarks/shards.jsonl"
FEATURES, PART, BATCH = 28, 65_536, 1000
WORDS = {
    "write": "written",
    "statistics": "mean and deviation",
    "epoch": "an epoch, files in the cache",
    "rank": "an epoch of the first of 4 ranks",
    "cold": "an epoch, files from the disc",
}


def made(rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)
    for start in range(0, rows, PART):
        size = min(PART, rows - start)
        yield random.standard_normal((size, FEATURES), np.float32), random.integers(0, 2, size)


def forget(folder: Path) -> None:
    """Have the operating system drop what it holds of the files, so that they are read from the disc."""
    for path in folder.glob("*.arrow"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def epoch(folder: Path, rank: int = 0, ranks: int = 1) -> int:
    return sum(len(x) for x, _ in Shards(folder).batches(BATCH, rank=rank, ranks=ranks))


def statistics(folder: Path) -> int:
    return len(Shards(folder)) if Shards(folder).statistics().std.all() else 0


def resident(name: str) -> int:
    """VmRSS, the memory resident now, or VmHWM, the most ever, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def from_disc() -> int:
    """Bytes that this process has made the operating system read from the disc."""
    return int(Path("/proc/self/io").read_text().partition("\nread_bytes: ")[2].split()[0])


def measured(what: str, folder: Path, rows: int) -> Row:
    tasks: dict[str, Callable[[], int]] = {
        "write": lambda: len(write_shards(folder, made(rows))),
        "statistics": lambda: statistics(folder),
        "epoch": lambda: epoch(folder),
        "rank": lambda: epoch(folder, 0, 4),
        "cold": lambda: epoch(folder),
    }
    torch.set_num_threads(1)
    arrow()  # imported before, since the library's own memory is not the question
    if what == "cold":
        forget(folder)
    before, disc, started = resident("VmRSS"), from_disc(), time.perf_counter()
    seen = tasks[what]()
    seconds = time.perf_counter() - started
    assert seen == rows // (4 if what == "rank" else 1), f"{what} saw {seen} rows of {rows}"
    size = sum(path.stat().st_size for path in folder.glob("*.arrow"))
    return {
        "what": what,
        "rows": rows,
        "rows_seen": seen,
        "bytes": size,
        "seconds": round(seconds, 2),
        "rows_per_second": round(seen / seconds),
        "read_from_disc": from_disc() - disc,
        "resident_before": before,
        "peak_resident": resident("VmHWM"),
    }


def run(rows: int, folder: Path, path: Path) -> None:
    """Measures all and puts the rows in place of those of this size in the file."""
    found = [row for row in (read(path) if path.exists() else []) if row.get("rows", rows) != rows]
    new = [
        row | {"environment": output.environment(torch.device("cpu")) | {"threads": 1}} for row in _all(rows, folder)
    ]
    write(path, sorted([*found, *new], key=lambda row: row["rows"]))


def _all(rows: int, folder: Path) -> Iterator[Row]:
    for what in WORDS:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            row = pool.submit(measured, what, folder, rows).result()
        print(row, flush=True)
        yield row


def text(path: Path = RESULTS) -> str:
    rows = [
        [
            f"{row['rows']:,}",
            WORDS[row["what"]],
            f"{row['seconds']:.1f}",
            f"{row['rows_per_second'] / 1e6:.2f} million",
            f"{(row['peak_resident'] - row['resident_before']) / 1e6:,.0f} MB",
        ]
        for row in read(path)
    ]
    return table(["rows", "what", "seconds", "rows a second", "memory taken at most"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_100_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="fill docs/data.md from the file, measure nothing")
    given = parser.parse_args()
    if given.table:
        fill(HERE / "docs/data.md", text(), "shards")
        return
    folder = Path(tempfile.mkdtemp(dir=given.folder))
    try:
        run(given.rows, folder / "shards", given.out)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
