"""Tables as the estimators take them: numbers alone, or columns with categories and missing values."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np


def columns_of(X: Any, checked: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The columns of a table under these names, as `altmin.data.columns.Columns` takes them. checked: X as an array.

    Of a data frame each column keeps its type; one of pandas' type "category" holds texts, whatever its categories are.
    """
    if not hasattr(X, "columns"):
        return dict(zip(names, checked.T, strict=True))
    if len(set(X.columns)) < len(names):
        raise ValueError(f"the columns of a table need names of their own, given {list(X.columns)!r:.60}")
    return {name: _values(X[given]) for name, given in zip(names, X.columns, strict=True)}


def _values(column: Any) -> np.ndarray:
    if str(column.dtype) != "category":
        return np.asarray(column)
    absent = np.asarray(column.isna())
    return np.array([None if gone else str(value) for value, gone in zip(column, absent, strict=True)], dtype=object)


def some_rows(table: Any, rows: Any) -> Any:
    """Some rows of a table, whether an array or columns by name."""
    return {name: column[rows] for name, column in table.items()} if isinstance(table, dict) else table[rows]


@contextmanager
def explained(X: Any) -> Iterator[None]:
    """scikit-learn's errors about a table in sentences that say what to do. ValueError for a number that is no float,
    such as 10**400, for texts and for missing values."""
    try:
        yield
    except ArithmeticError as error:
        raise ValueError(f"the table, its targets or its weights hold a number that no float can be: {error}") from None
    except ValueError as error:
        words = str(error)
        if "could not convert string to float" in words and (found := _first_text(X)):
            name, text = found
            raise ValueError(
                f"column {name!r} has texts such as {text!r:.60}, and a network takes numbers; encode them first, for "
                'example by sklearn.preprocessing.OneHotEncoder, or give categorical="auto"'
            ) from None
        if words.startswith("Input X contains NaN"):
            raise ValueError(
                'Input X contains NaN, which stands for a missing value; give categorical="auto", or put an imputer '
                "such as sklearn.impute.SimpleImputer before the estimator"
            ) from None
        raise


def _first_text(X: Any) -> tuple[Any, str] | None:
    """The name of the first column with a text that is no number, and that text."""
    array = np.asarray(X, dtype=object)
    names = list(X.columns) if hasattr(X, "columns") else list(range(array.shape[1] if array.ndim == 2 else 0))
    for name, column in zip(names, array.T, strict=False):
        for value in column:
            if isinstance(value, str) and not _is_number(value):
                return name, str(value)
    return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
