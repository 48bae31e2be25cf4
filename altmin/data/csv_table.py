"""Reading a table of numbers from a text file, in bounded memory."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from altmin.data.shards import arrow

BLOCK = 1 << 22  # bytes of text at a time


def csv_batches(source: str | Path, *, labels: bool = True) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of a text of numbers with commas between them, plain or gzipped, as that of HIGGS; for `write_shards`.

    The first column is the target: a label that becomes int64 or, with labels=False, a float32 as all features are. A
    first line that is not numbers is left out. ValueError for rows that are not numbers or of another length, and for a
    label that is not whole.
    """
    source = Path(source)
    pyarrow = arrow()
    opened = gzip.open if source.suffix == ".gz" else open
    with opened(source, "rt") as file:
        fields = file.readline().split(",")
    skipped = 0 if all(_number(field) for field in fields) else 1
    how = {"skip_rows": skipped, "block_size": BLOCK, "use_threads": False}
    with pyarrow.input_stream(str(source), compression="gzip" if source.suffix == ".gz" else None) as stream:
        try:
            for y, *columns in float_columns(stream, len(fields), **how):
                if labels and not (y == np.round(y)).all():
                    raise ValueError(f"{source} has the label {y[y != np.round(y)][0]}, expected whole numbers")
                yield np.stack(columns, axis=1), y.astype(np.int64) if labels else y
        except pyarrow.ArrowInvalid as error:
            raise ValueError(
                f"{source} is no table of numbers: {error}; give one with a number in every column"
            ) from None


def float_columns(stream: Any, columns: int, **how: Any) -> Iterator[list[np.ndarray]]:
    """The columns of each block of a text of numbers, float32. how: pyarrow's `ReadOptions`. ArrowInvalid for a text
    that is none."""
    from pyarrow import csv, float32

    names = [str(column) for column in range(columns)]
    types = csv.ConvertOptions(column_types=dict.fromkeys(names, float32()), null_values=[])
    for batch in csv.open_csv(stream, csv.ReadOptions(column_names=names, **how), convert_options=types):
        yield [column.to_numpy(zero_copy_only=False) for column in batch.columns]


def _number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
