"""Tables with categories and missing values, and tables in files."""

import gzip
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler

from altmin.common.files import check_unpacked
from altmin.common.optional import need
from altmin.sklearn.export import Encode

MISSING = ["", "na", "n/a", "nan", "null", "?"]
"""Texts that mark a missing value in a text file, in small or capital letters."""
NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal", "empty")
Categories = dict[str, Sequence[str | None] | None]
"""By name of a column its categories, None among them for missing values, or None for numbers."""
FEW = 10
"""Categories up to which a column may have another one in every row."""
TRUTH, DIGITS = ("False", "True"), ("0", "1")
"""The names of the two truth values, and of the numbers that mean the same."""


class Columns:
    """Encoding of the columns of a table as inputs of a network, learnt from training rows.

    A number is standardised, and 0 where it is missing; another column tells where, if there were some in training. A
    text or truth value becomes a column of 0 and 1 for each category, and for missing ones if there were some; a
    category that training did not see is 0 in all, with a warning; False and True are 0 and 1 too, and these the
    reverse. A column without any value is left out.

    layout: the arguments of the `Encode` that makes the inputs from `codes`.

    >>> import pandas
    >>> table = pandas.DataFrame({"age": [20.0, 40.0, None], "city": ["Rome", "Bonn", "Rome"]})
    >>> columns = Columns(table)
    >>> columns.encode(pandas.DataFrame({"age": [50.0, None], "city": ["Bonn", "Rome"]}))
    array([[2., 0., 1., 0.],
           [0., 1., 0., 1.]], dtype=float32)
    """

    def __init__(self, table: Any):
        self.categories: Categories = {name: categories_of(table[name]) for name in table}
        x = codes(table, self.categories)
        absent, known = np.isnan(x), list(self.categories.values())
        numbers = [n for n, names in enumerate(known) if names is None and not absent[:, n].all()]
        scaler = StandardScaler().fit(x[:, numbers]) if numbers else None
        self.layout: dict[str, Any] = {
            "numbers": numbers,
            "mean": [] if scaler is None else scaler.mean_.tolist(),
            "scale": [] if scaler is None else scaler.scale_.tolist(),
            "marked": [n for n in numbers if absent[:, n].any()],
            "texts": [(n, len(names), None in names) for n, names in enumerate(known) if names],
        }

    def encode(self, table: Any) -> np.ndarray:
        """Return the inputs for the rows of a table, float32 (rows, inputs). ValueError for a text where numbers are
        expected and for an infinite number."""
        inputs: np.ndarray = Encode(**self.layout)(torch.from_numpy(codes(table, self.categories))).float().numpy()
        return inputs


def categories_of(column: Any) -> Sequence[str | None] | None:
    """Return the categories of a column, None for one of numbers. ValueError if almost every row has its own."""
    if need("pandas", "sklearn", "a table with categories").api.types.infer_dtype(column, skipna=True) in NUMBERS:
        return None
    texts = texts_of(column)
    names = sorted(set(texts.dropna()))
    if len(names) > max(FEW, len(column) / 2):
        raise ValueError(
            f"column {column.name!r} has {len(names):,} different texts such as {names[0]!r:.60} in {len(column):,} "
            "rows, as ids, dates and mistyped numbers have; correct it or leave it out"
        )
    return [*names, None] if texts.isna().any() else names


def numbers_of(column: Any) -> np.ndarray:
    """Return a column of a data frame as float64, NaN for missing values. ValueError for a text or an infinite
    number."""
    try:
        numbers: np.ndarray = need("pandas").to_numeric(column).to_numpy(np.float64, na_value=np.nan)
    except (ValueError, TypeError) as error:
        raise ValueError(f"column {column.name!r} is to have numbers: {error}") from None
    if np.isinf(numbers).any():
        raise ValueError(f"column {column.name!r} has an infinite number")
    return numbers


def texts_of(column: Any) -> Any:
    """Return a column of a data frame as texts, NaN for missing values."""
    return column.astype(object).map(name_of, na_action="ignore")


def name_of(value: Any) -> str:
    """Return a value as the name of a category; a whole number has one name, whether it is an int or a float."""
    whole = isinstance(value, float | np.floating) and value.is_integer()
    return str(int(value)) if whole else str(value)


def codes(table: Any, categories: Categories) -> np.ndarray:
    """Return the rows of a data frame as numbers (rows, columns) for the module of an estimator: a category as its
    place among `categories` of its column, -1 if it is none of them, and NaN for missing values."""
    columns = []
    for name, known in categories.items():
        if name not in table:
            raise ValueError(f"there is no column {name!r}; the columns are: {', '.join(map(str, table))}")
        if known is None:
            columns.append(numbers_of(table[name]))
            continue
        texts = texts_of(table[name])
        code = texts.map(_places(known)).to_numpy(np.float64)
        new = texts.notna().to_numpy() & np.isnan(code)
        if new.any():
            warnings.warn(f"column {name!r} has {texts[new].iloc[0]!r:.60}, which training did not see", stacklevel=2)
        columns.append(np.where(new, -1.0, code))
    return np.stack(columns, axis=1)


def _places(known: Sequence[str | None]) -> dict[str | None, int]:
    """Return the place of each category by its names: a truth value has two."""
    places = {name: n for n, name in enumerate(known)}
    for names, others in ((TRUTH, DIGITS), (DIGITS, TRUTH)):
        if set(known) <= {*names, None}:
            places |= {other: places[name] for name, other in zip(names, others, strict=True) if name in places}
    return places


def read_table(path: str | Path) -> Any:
    """Return a table in a file as a data frame: .csv, .tsv, .gz of these, or .parquet.

    The first line of a text file names the columns, which commas, semicolons or tabs separate. A column has numbers if
    each of its cells is a number or empty; NA, N/A, NaN, null and ? are empty too. ValueError for another file.
    """
    pandas, name = need("pandas", "sklearn", "a table"), str(path).lower()
    if name.endswith(".parquet"):
        return pandas.read_parquet(path)
    if not name.removesuffix(".gz").endswith((".csv", ".tsv")):
        raise ValueError(f"{path} should end in .csv, .tsv, .csv.gz, .tsv.gz or .parquet to be a table")
    how = {"dtype": str, "keep_default_na": False, "encoding": "utf-8-sig", "index_col": False}
    try:
        if name.endswith(".gz"):
            check_unpacked(path)
        with (gzip.open if name.endswith(".gz") else open)(path, "rt", encoding="utf-8-sig") as file:
            first = file.readline()
        separator = max(",;\t", key=first.count)
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)  # rows with more cells than names
            table = pandas.read_csv(path, sep=separator, **how).rename(columns=str.strip)
    except (EOFError, zlib.error, pandas.errors.ParserWarning) as error:
        raise ValueError(f"{path} cannot be read as a table: {error}") from None
    if first.startswith(separator):
        warnings.warn(f"the first column of {path} has no name, as that of an index, and is left out", stacklevel=2)
        table = table.iloc[:, 1:]
    return table.apply(_parsed)


def _parsed(column: Any) -> Any:
    """Return a column of texts as numbers, if all that are there are some."""
    texts = column.str.strip()
    texts = texts.where(~texts.str.lower().isin(MISSING))
    numbers = need("pandas").to_numeric(texts, errors="coerce")
    return numbers if numbers.isna().equals(texts.isna()) else texts
