"""Reading a table of numbers from a text file, in bounded memory."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from altmin.data.damage import Damaged, unpacking
from altmin.data.shards import arrow

BLOCK = 1 << 20  # bytes of text at a time; the reader holds some dozens of them
FIRST = 1 << 16
"""Bytes of the first line, at most."""


def csv_batches(source: str | Path, *, labels: bool = True) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of a text of numbers with commas between them, plain or gzipped, as that of HIGGS; for `write_shards`.

    The first column is the target: a label that becomes int64 or, with labels=False, a float32 as all features are. A
    first line that is not numbers is left out. Damaged, a ValueError, for rows that are not numbers or of another
    length, for a label that is not whole, and for a gzip file that is not sound.
    """
    source = Path(source)
    pyarrow = arrow()
    from pyarrow import csv

    with unpacking(source) if source.suffix == ".gz" else source.open("rb") as file:
        fields = file.readline(FIRST).split(b",")
        file.seek(0)
        names = [str(column) for column in range(len(fields))]
        types = csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.float32()), null_values=[])
        how = csv.ReadOptions(
            column_names=names, skip_rows=0 if _numbers(fields) else 1, block_size=BLOCK, use_threads=False
        )
        try:
            for batch in csv.open_csv(file, how, convert_options=types):
                y, *columns = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
                if labels and not (y == np.round(y)).all():
                    raise Damaged(source, f"it has the label {y[y != np.round(y)][0]}, expected whole numbers")
                yield np.stack(columns, axis=1), y.astype(np.int64) if labels else y
        except pyarrow.ArrowInvalid as error:
            remedy = "give one with a number in every column"
            raise Damaged(source, f"it is no table of numbers: {error}", remedy) from None


def _numbers(fields: list[bytes]) -> bool:
    try:
        return all(float(field) is not None for field in fields)
    except ValueError:
        return False
