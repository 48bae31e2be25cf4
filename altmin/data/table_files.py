"""Tables in files: CSV, plain or gzipped, Parquet, and .npz with arrays x and y."""

import csv
import gzip
import io
import warnings
import zipfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np

from altmin.common.optional import need
from altmin.data.columns import Table, number

MISSING = {"", "na", "n/a", "nan", "null", "?"}
"""What a cell without a value may hold, in small or capital letters."""
DELIMITERS = ",;\t"


def is_table(name: str) -> bool:
    """Whether `name` is that of a file that `read_table` can read.

    >>> is_table("flats.csv"), is_table("mnist")
    (True, False)
    """
    return name.lower().endswith(tuple(READERS))


def read_table(path: str | Path, texts: Collection[str] = ()) -> Table:
    """The columns of a table by name. Those of a .npz file are its arrays x (rows, ...) and y (rows,).

    The first line of a CSV file names the columns, which commas, semicolons or tabs separate. A column has numbers if
    each of its cells is a number or empty; NA, N/A, NaN, null and ? are empty too. texts: columns that have texts all
    the same. FileNotFoundError if there is no such file, ValueError if it is no such table or has no rows.
    """
    path = Path(path)
    if not is_table(path.name):
        raise ValueError(f"{path} should end in {', '.join(READERS)} to be a table")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; give --data a table, {', '.join(READERS)}")
    read = next(read for suffix, read in READERS.items() if path.name.lower().endswith(suffix))
    table = read(path, texts)
    if not table or not len(next(iter(table.values()))):
        raise _no_table(path, "it has no rows")
    return table


def _csv(path: Path, texts: Collection[str]) -> Table:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _parsed(path, file, texts)
    except UnicodeDecodeError:
        raise _no_table(path, "it is no text in UTF-8") from None


def _gzipped_csv(path: Path, texts: Collection[str]) -> Table:
    with gzip.open(path) as file:
        try:
            return _parsed(path, io.TextIOWrapper(file, encoding="utf-8-sig", newline=""), texts)
        except UnicodeDecodeError:
            raise _no_table(path, "it is no text in UTF-8") from None


def _parsed(path: Path, file: io.TextIOBase, texts: Collection[str]) -> Table:
    first = file.readline()
    delimiter = max(DELIMITERS, key=first.count)
    lines = csv.reader([first], delimiter=delimiter, strict=True)
    try:
        names = [name.strip() for name in next(lines, [])]
        _check_names(path, names)
        lines, rows = csv.reader(file, delimiter=delimiter, strict=True), []
        for row in filter(None, lines):
            if len(row) != len(names):
                what = f"line {lines.line_num + 1} has another number of cells than the first line: {len(row)}"
                raise _no_table(path, f"{what}, not {len(names)}", "put quotes around texts with a comma")
            rows.append(row)
    except csv.Error as error:
        raise _no_table(path, f"after line {lines.line_num}: {error}") from None
    found = {name: _column(cells, name in texts) for name, cells in zip(names, zip(*rows, strict=True), strict=False)}
    if "" in found:
        warnings.warn(f"the first column of {path} has no name, as that of an index, and is left out", stacklevel=4)
    return {name: values for name, values in found.items() if name}


def _check_names(path: Path, names: Sequence[str]) -> None:
    """ValueError unless the first line names columns, each another. The first one may have no name."""
    if not any(names):
        raise _no_table(path, "it is empty, or its first line is")
    for place, name in enumerate(names, 1):
        if place > 1 and not name:
            raise _no_table(path, f"column {place} has no name in its first line")
        if names.index(name) != place - 1:
            raise _no_table(path, f"it has two columns called {name!r}", "give each a name of its own")
    if all(_is_number(name) for name in names):
        raise _no_table(path, f"its first line has numbers, such as {names[0]!r}, where the names of columns belong")


def _column(cells: Sequence[str], text: bool) -> np.ndarray:
    """Numbers, if all cells that have a value are, else objects: texts, and None where there is none."""
    cells = [cell.strip() for cell in cells]
    absent = [cell.lower() in MISSING for cell in cells]
    if not text:
        try:
            return np.array([np.nan if no else number(cell) for cell, no in zip(cells, absent, strict=True)])
        except ValueError:
            pass
    return np.array([None if no else cell for cell, no in zip(cells, absent, strict=True)], dtype=object)


def _is_number(text: str) -> bool:
    try:
        return number(text) is not None
    except ValueError:
        return False


def _parquet(path: Path, texts: Collection[str]) -> Table:
    parquet, pyarrow = need("pyarrow.parquet", what="a Parquet file"), need("pyarrow")
    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise _no_table(path, str(error).partition("\n")[0].rstrip("."), "give a sound copy") from None
    found = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pyarrow.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pyarrow.types.is_decimal(column.type):
            column = column.cast(pyarrow.float64())
        if not name.startswith("__index_level_"):  # which pandas writes
            found[name] = column.to_numpy()
    return found


def _npz(path: Path, texts: Collection[str]) -> Table:
    remedy = "give arrays x (rows, ...) and y (rows,), as numpy.savez(path, x=x, y=y) writes them"
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in ("x", "y") if name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError):
        raise _no_table(path, "it is no .npz file of numbers", remedy) from None
    if "x" not in found or found["x"].ndim < 2 or found["x"].dtype.kind not in "fiub":
        raise _no_table(path, "it has no array x of numbers, (rows, ...)", remedy)
    if "y" in found and found["y"].shape not in (found["x"].shape[:1], (len(found["x"]), 1)):
        raise _no_table(path, f"its x is {found['x'].shape} and its y {found['y'].shape}", remedy)
    return found | {"y": found["y"].reshape(-1)} if "y" in found else found


def _no_table(path: Path, what: str, remedy: str = "give names of columns in the first line, then rows") -> ValueError:
    return ValueError(f"{path} cannot be read as a table: {what}; {remedy}")


READERS: dict[str, Callable[[Path, Collection[str]], Table]] = {
    **dict.fromkeys((".csv", ".tsv"), _csv),
    ".csv.gz": _gzipped_csv,
    ".parquet": _parquet,
    ".npz": _npz,
}
"""By the ends of their names."""
