"""Reading a table of numbers from a text file, in bounded memory."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from altmin.data.damage import Damaged, unpacking
from altmin.data.shards import arrow

BLOCK = 1 << 20  # bytes of text at a time, and of a line at most; the reader holds some dozens of them
FIRST = 1 << 16
"""Bytes of the first line, at most: the reader holds some kilobytes for each column."""
EXACT = 1 << 24
"""Below it a float32 has every whole number."""
BOM = b"\xef\xbb\xbf"
"""What a text of UTF-8 may begin with."""
REMEDY = "give one with a number in every column"


def csv_batches(source: str | Path, *, labels: bool = True) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of a text of numbers with commas between them, plain or gzipped, as that of HIGGS; for `write_shards`.

    The first column is the target: a label that becomes int64 or, with labels=False, a float32 as all features are. A
    first line that is not numbers is left out. Damaged, a ValueError, for rows that are not numbers or of another
    length, for a line of more than a megabyte (the first: 64 kB), for a label that is not a whole number below 2^24,
    and for a gzip file that is not sound.
    """
    source = Path(source)
    pyarrow = arrow()
    from pyarrow import csv

    with unpacking(source) if source.suffix == ".gz" else source.open("rb") as file:
        first = file.readline(FIRST + 1).splitlines() or [b""]
        if len(first[0]) > FIRST:
            raise Damaged(source, f"it is no table of numbers: its first line has more than {FIRST:,} bytes", REMEDY)
        fields = first[0].removeprefix(BOM).split(b",")
        if len(fields) < 2:
            raise Damaged(
                source,
                "it is no table of numbers: it has fewer than two columns",
                "give a target and at least one feature in each row",
            )
        file.seek(0)
        names = [str(column) for column in range(len(fields))]
        types = csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.float32()), null_values=[])
        how = csv.ReadOptions(
            column_names=names, skip_rows=0 if _numbers(fields) else 1, block_size=BLOCK, use_threads=False
        )
        try:
            for batch in csv.open_csv(file, how, convert_options=types):
                y, *columns = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
                if labels and not (sound := (y == np.round(y)) & (abs(y) < EXACT)).all():
                    raise Damaged(source, f"it has the label {y[~sound][0]}, expected whole numbers below {EXACT:,}")
                yield np.stack(columns, axis=1), y.astype(np.int64) if labels else y
        except pyarrow.ArrowInvalid as error:
            what = f"it has a line of more than {BLOCK:,} bytes" if "straddl" in str(error) else str(error)
            raise Damaged(source, f"it is no table of numbers: {what}", REMEDY) from None


def _numbers(fields: list[bytes]) -> bool:
    try:
        return all(float(field.strip(b' "')) is not None for field in fields)
    except ValueError:
        return False
