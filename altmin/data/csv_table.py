"""Reading a table of numbers from a text, in bounded memory."""

import gzip
from collections.abc import Iterator
from pathlib import Path

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
    from pyarrow import csv

    opened = gzip.open if source.suffix == ".gz" else open
    with opened(source, "rt") as file:
        fields = file.readline().split(",")
    names = [str(column) for column in range(len(fields))]
    skipped = 0 if all(_number(field) for field in fields) else 1
    read = csv.ReadOptions(column_names=names, skip_rows=skipped, block_size=BLOCK, use_threads=False)
    types = csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.float32()), null_values=[])
    with pyarrow.input_stream(str(source), compression="gzip" if source.suffix == ".gz" else None) as stream:
        try:
            for batch in csv.open_csv(stream, read_options=read, convert_options=types):
                columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
                y = columns[0]
                if labels and not (y == np.round(y)).all():
                    raise ValueError(f"{source} has the label {y[y != np.round(y)][0]}, expected whole numbers")
                yield np.stack(columns[1:], axis=1), y.astype(np.int64) if labels else y
        except pyarrow.ArrowInvalid as error:
            raise ValueError(
                f"{source} is no table of numbers: {error}; give one with a number in every column"
            ) from None


def _number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
