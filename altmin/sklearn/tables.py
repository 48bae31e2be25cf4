"""Tables with categories and missing values, and tables in files."""

import gzip
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from altmin.common.optional import need

MISSING = ["", "na", "n/a", "nan", "null", "?"]
"""What a cell of a text file without a value may hold, in small or capital letters."""
NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal")
CATEGORIES = ("string", "boolean", "categorical", "mixed", "mixed-integer")
FEW = 10
"""Categories up to which a column may have another one in every row."""


class Columns:
    """How the columns of a table become the inputs of a network, learnt from training rows.

    A number is standardised, and 0 where it is missing; another column tells where, if there were some in training. A
    text or truth value becomes a column of 0 and 1 for each category, and for missing ones if there were some; a
    category that training did not see is 0 in all, with a warning. A column without any value is left out.

    >>> import pandas
    >>> table = pandas.DataFrame({"age": [20.0, 40.0, None], "city": ["Rome", "Bonn", "Rome"]})
    >>> columns = Columns(table)
    >>> columns.encode(pandas.DataFrame({"age": [50.0, None], "city": ["Bonn", "Rome"]}))
    array([[2., 0., 1., 0.],
           [0., 1., 0., 1.]], dtype=float32)
    """

    def __init__(self, table: Any):
        infer = need("pandas", "sklearn", "a table with categories").api.types.infer_dtype
        kinds = {name: "empty" if table[name].isna().all() else infer(table[name], skipna=True) for name in table}
        self.names = list(table)
        self.numbers = [name for name, kind in kinds.items() if kind in NUMBERS]
        self.texts = [name for name, kind in kinds.items() if kind in CATEGORIES]
        for name, kind in kinds.items():
            if kind not in (*NUMBERS, *CATEGORIES, "empty"):
                raise ValueError(f"column {name!r} has values of type {kind}; give numbers or texts instead")
        numbers = make_pipeline(
            StandardScaler(), SimpleImputer(strategy="constant", fill_value=0.0, add_indicator=True)
        )
        texts = OneHotEncoder(handle_unknown="warn", sparse_output=False)
        self.transformer = ColumnTransformer([("numbers", numbers, self.numbers), ("texts", texts, self.texts)])
        self.transformer.fit(self._plain(table))
        for name, categories in zip(self.texts, self._categories(), strict=True):
            if len(categories) > max(FEW, len(table) / 2):
                raise ValueError(
                    f"column {name!r} has {len(categories):,} different texts such as {categories[0]!r:.60} in "
                    f"{len(table):,} rows, as ids and mistyped numbers have; correct it or leave it out"
                )

    def encode(self, table: Any) -> np.ndarray:
        """Return the inputs for the rows of a table, float32 (rows, inputs). ValueError for a text where numbers are
        expected and for an infinite number."""
        found: np.ndarray = self.transformer.transform(self._plain(table))
        return found.astype(np.float32)

    def layout(self) -> dict[str, list[Any]]:
        """Return the arguments of the `Encode` that makes the same inputs of rows as `codes` gives them."""
        found: dict[str, list[Any]] = {"mean": [], "scale": [], "marked": []}
        if self.numbers:
            scaler, imputer = self.transformer.named_transformers_["numbers"]
            learnt = scaler.mean_, scaler.scale_, imputer.indicator_.features_
            found = dict(zip(found, (each.tolist() for each in learnt), strict=True))
        return found | {
            "numbers": [self.names.index(name) for name in self.numbers],
            "texts": [self.names.index(name) for name in self.texts],
            "counts": [len(each) for each in self._categories()],
            "missing": [each[-1] is None for each in self._categories()],
        }

    def categories(self) -> dict[str, list[str | None] | None]:
        """Return by name of a column its categories, None among them for missing values, or None for numbers."""
        texts = dict(zip(self.texts, self._categories(), strict=True))
        return {name: texts.get(name) for name in self.names}

    def _categories(self) -> list[list[str | None]]:
        found = self.transformer.named_transformers_["texts"].categories_ if self.texts else []
        return [[each if isinstance(each, str) else None for each in categories] for categories in found]

    def _plain(self, table: Any) -> Any:
        """Return the columns as float64 numbers, and as texts with NaN where there is none."""
        pandas = need("pandas")
        plain = {name: numbers_of(table[name]) for name in self.numbers}
        plain |= {name: texts_of(table[name]) for name in self.texts}
        return pandas.DataFrame(plain, index=table.index)


def numbers_of(column: Any) -> np.ndarray:
    """Return a column of a data frame as float64, NaN for missing values. ValueError for a text."""
    try:
        found: np.ndarray = need("pandas").to_numeric(column).to_numpy(np.float64, na_value=np.nan)
    except (ValueError, TypeError) as error:
        raise ValueError(f"column {column.name!r} is to have numbers: {error}") from None
    return found


def texts_of(column: Any) -> np.ndarray:
    """Return a column of a data frame as texts, NaN for missing values."""
    absent = np.asarray(column.isna())
    return np.array([np.nan if gone else name_of(v) for v, gone in zip(column, absent, strict=True)], dtype=object)


def name_of(value: Any) -> str:
    """Return a value as the name of a category; a whole number has one name, whether it is an int or a float."""
    whole = isinstance(value, float | np.floating) and value.is_integer()
    return str(int(value)) if whole else str(value)


def codes(table: Any, categories: dict[str, list[str | None] | None]) -> np.ndarray:
    """Return the rows of a data frame as numbers (rows, columns) for the module of an estimator: a category as its
    place among `categories` of its column, -1 if it is none of them, and NaN for missing values."""
    found = []
    for name, known in categories.items():
        if name not in table:
            raise ValueError(f"there is no column {name!r}; the columns are: {', '.join(map(str, table))}")
        if known is None:
            found.append(numbers_of(table[name]))
            continue
        place, texts = {text: n for n, text in enumerate(known)}, texts_of(table[name])
        found.append(np.array([place.get(text, -1) if isinstance(text, str) else np.nan for text in texts]))
        if (new := np.flatnonzero(found[-1] < 0)).size:
            warnings.warn(f"column {name!r} has {texts[new[0]]!r:.60}, which training did not see", stacklevel=2)
    return np.stack(found, axis=1)


def frame(X: Any, checked: np.ndarray, names: Sequence[str]) -> Any:
    """Return a table as a data frame with these names of columns. checked: X as an array."""
    pandas = need("pandas", "sklearn", 'categorical="auto"')
    table = pandas.DataFrame(X) if hasattr(X, "columns") else pandas.DataFrame(checked).infer_objects()
    return table.set_axis(list(names), axis=1)


def read_table(path: str | Path) -> Any:
    """Return a table in a file as a data frame: .csv, .tsv (and .gz of these), .parquet, or .npz with arrays x and y.

    The first line of a text file names the columns, which commas, semicolons or tabs separate. A column has numbers if
    each of its cells is a number or empty; NA, N/A, NaN, null and ? are empty too. ValueError for another file.
    """
    pandas = need("pandas", "sklearn", "a table")
    name = str(path).lower()
    try:
        if name.endswith(".parquet"):
            return pandas.read_parquet(path)
        if name.endswith(".npz"):
            with np.load(path, allow_pickle=False) as file:
                columns = {f"x{n}": column for n, column in enumerate(file["x"].reshape(len(file["x"]), -1).T)}
                return pandas.DataFrame(columns | ({"y": file["y"]} if "y" in file else {}))
        if name.removesuffix(".gz").endswith((".csv", ".tsv")):
            return _read_text(path, gzip.open if name.endswith(".gz") else open)
    except (EOFError, KeyError, zipfile.BadZipFile, pandas.errors.ParserWarning) as error:
        raise ValueError(f"{path} cannot be read as a table: {error}") from None
    raise ValueError(f"{path} should end in .csv, .tsv, .csv.gz, .tsv.gz, .parquet or .npz to be a table")


def _read_text(path: str | Path, opening: Any) -> Any:
    pandas = need("pandas")
    with opening(path, "rt", encoding="utf-8-sig") as file:
        first = file.readline()
    separator = max(",;\t", key=first.count)
    how = {"sep": separator, "dtype": str, "keep_default_na": False, "encoding": "utf-8-sig", "index_col": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)  # rows with more cells than names
        table = pandas.read_csv(path, **how).rename(columns=str.strip)
    if first.startswith(separator):
        warnings.warn(f"the first column of {path} has no name, as that of an index, and is left out", stacklevel=3)
        table = table.iloc[:, 1:]
    return table.apply(_parsed)


def _parsed(column: Any) -> Any:
    """Return a column of texts as numbers, if all that are there are some."""
    texts = column.str.strip()
    texts = texts.where(~texts.str.lower().isin(MISSING))
    numbers = need("pandas").to_numeric(texts, errors="coerce")
    return numbers if numbers.isna().equals(texts.isna()) else texts
