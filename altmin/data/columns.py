"""The columns of a table as the numbers that a network takes: numbers standardised, categories one-hot, missing values
replaced. All of it is learnt from the training rows, and applied to others as it is."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from altmin.data.standardise import Scale

Table = Mapping[str, np.ndarray]
"""The columns of a table by name, arrays (rows,): numbers, truth values, or objects for texts. None, NaN and pandas' NA
are missing values."""
MOST = 1000
"""Categories of a column, at most."""
FEW = 10
"""Categories up to which a column may have another one in every row, and rows in which all may be unknown."""


@dataclass(frozen=True)
class Number:
    """A column of numbers: (value - mean) / std, and 0 for a missing value. missing: whether another column says which
    are missing, as it does if some of the training rows were."""

    name: str
    mean: float
    std: float
    missing: bool

    @classmethod
    def fit(cls, name: str, values: np.ndarray) -> "Number":
        numbers = numbers_of(name, values)
        absent = np.isnan(numbers)
        scale = Scale.of(numbers[~absent, None])
        return cls(name, float(scale.mean[0]), float(scale.std[0]), bool(absent.any()))

    @property
    def features(self) -> list[str]:
        return [self.name, *[f"{self.name} is missing"] * self.missing]

    def encode(self, values: np.ndarray) -> list[np.ndarray]:
        numbers = numbers_of(self.name, values)
        absent = np.isnan(numbers)
        found = np.where(absent, 0.0, (numbers - self.mean) / self.std)
        if (large := np.flatnonzero(abs(found) > np.finfo(np.float32).max)).size:
            raise ValueError(f"column {self.name!r} has {numbers[large[0]]:g} in row {large[0] + 1}, far too large")
        return [found, *[absent] * self.missing]


@dataclass(frozen=True)
class Category:
    """A column of texts or truth values: for each of the categories 1 where the value is that one, else 0; so a missing
    value and a category that the training rows lack are 0 in all. missing: as of `Number`."""

    name: str
    categories: Sequence[str]
    missing: bool

    @classmethod
    def fit(cls, name: str, values: np.ndarray) -> "Category":
        absent = missing_values(values)
        texts = category_names(values[~absent])
        categories = sorted(set(texts))
        if len(categories) > MOST or len(categories) > max(FEW, len(texts) / 2):
            raise ValueError(
                f"column {name!r} has {len(categories):,} different texts such as {categories[0]!r:.60} in "
                f"{len(texts):,} rows, as names and ids have; leave it out, on the command line by --drop {name}"
                f"{_or_mend(texts)}"
            )
        return cls(name, categories, bool(absent.any()))

    @property
    def features(self) -> list[str]:
        return [*(f"{self.name} = {text}" for text in self.categories), *[f"{self.name} is missing"] * self.missing]

    def encode(self, values: np.ndarray) -> list[np.ndarray]:
        absent, place = missing_values(values), {text: n for n, text in enumerate(self.categories)}
        found = np.full(len(values), -1)
        found[~absent] = [place.get(text, -1) for text in category_names(values[~absent])]
        if len(known := found[~absent]) > FEW and (known < 0).all():
            warnings.warn(
                f"column {self.name!r} has none of the {len(place)} categories it was fitted to, such as "
                f"{self.categories[0]!r:.60}",
                stacklevel=3,
            )
        return [*(found == n for n in range(len(place))), *[absent] * self.missing]


@dataclass(frozen=True)
class Columns:
    """How the columns of a table become the inputs of a network.

    >>> table = {"age": np.array([20.0, 40.0, np.nan]), "city": np.array(["Rome", "Bonn", "Rome"], dtype=object)}
    >>> columns = Columns.fit(table)
    >>> columns.features
    ['age', 'age is missing', 'city = Bonn', 'city = Rome']
    >>> columns.encode({"age": np.array([50.0, np.nan]), "city": np.array(["Oslo", "Rome"], dtype=object)})
    array([[2., 0., 0., 0.],
           [0., 1., 0., 1.]], dtype=float32)
    """

    columns: Sequence[Number | Category]

    @classmethod
    def fit(cls, table: Table) -> "Columns":
        """Learn from the training rows: mean and standard deviation of numbers, the categories of texts and truth
        values, and which columns have missing values. A column without any value is left out, with a warning.

        ValueError for a column of dates or other objects, with an infinite number, or with another text in most rows.
        """
        found: list[Number | Category] = []
        for name, values in table.items():
            if values.dtype.kind not in "fiubOUT":
                raise ValueError(f"column {name!r} has values of type {values.dtype}; give numbers or texts instead")
            if missing_values(values).all():
                warnings.warn(f"column {name!r} has no value in the training rows and is left out", stacklevel=2)
                continue
            found.append((Number if _are_numbers(values) else Category).fit(name, values))
        if not found:
            raise ValueError("the table has no column with a value to learn from; give at least one")
        return cls(found)

    @property
    def names(self) -> list[str]:
        """The columns that `encode` needs."""
        return [each.name for each in self.columns]

    @property
    def categories(self) -> list[str]:
        """Those of them that are categories."""
        return [each.name for each in self.columns if isinstance(each, Category)]

    @property
    def features(self) -> list[str]:
        """The columns of what `encode` gives."""
        return [name for each in self.columns for name in each.features]

    def encode(self, table: Table) -> np.ndarray:
        """The rows of a table as numbers, float32 (rows, features). Columns of other names are not looked at.

        ValueError for a missing column, a text where numbers are expected, and a number that is not finite.
        """
        if absent := [name for name in self.names if name not in table]:
            raise ValueError(f"there is no column {', '.join(map(repr, absent))}; the columns are: {', '.join(table)}")
        parts = [part for each in self.columns for part in each.encode(table[each.name])]
        return np.stack(parts, axis=1, dtype=np.float32, casting="unsafe")

    def to_json(self) -> list[dict[str, Any]]:
        """All of it in values that JSON has."""
        return [asdict(each) for each in self.columns]

    @classmethod
    def from_json(cls, given: Any) -> "Columns":
        """What `to_json` gave. ValueError for anything else."""
        try:
            return cls([(Category if "categories" in each else Number)(**each) for each in given])
        except TypeError:
            raise ValueError(f"these are no columns of a table, as to_json writes them: {given!r:.60}") from None


def number(text: str) -> float:
    """The number that a text is. ValueError if it is none; 1_000, which Python would read, is none."""
    if "_" in text:
        raise ValueError(f"{text!r} is no number")
    return float(text)


def numbers_of(name: str, values: np.ndarray) -> np.ndarray:
    """A column as float64, NaN for missing values. ValueError for a text and for an infinite number."""
    if values.dtype.kind in "fiu":
        found = values.astype(np.float64)
    else:
        absent, found = missing_values(values), np.full(len(values), np.nan)
        for row in np.flatnonzero(~absent):
            try:
                found[row] = number(values[row]) if isinstance(values[row], str) else values[row]
            except (TypeError, ValueError):
                raise ValueError(
                    f"column {name!r} has {values[row]!r:.60} in row {row + 1}, where numbers are expected"
                ) from None
    if (infinite := np.flatnonzero(np.isinf(found))).size:
        raise ValueError(f"column {name!r} has an infinite number in row {infinite[0] + 1}; leave its cell empty")
    return found


def _are_numbers(values: np.ndarray) -> bool:
    """Whether a column has numbers; a column of objects does if all are numbers and none is a truth value."""
    if values.dtype.kind in "fiu":
        return True
    plain = (int, float, np.integer, np.floating)
    there = values[~missing_values(values)] if values.dtype.kind == "O" else []
    return len(there) > 0 and all(isinstance(value, plain) and not isinstance(value, bool) for value in there)


def missing_values(values: np.ndarray) -> np.ndarray:
    """Which values are missing."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind != "O":
        return np.zeros(len(values), bool)
    return np.fromiter((_is_missing(value) for value in values), bool, len(values))


def _is_missing(value: Any) -> bool:
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")  # of pandas, which need not be installed


def category_names(values: np.ndarray) -> list[str]:
    """Values as the names of categories; a whole number has one name, whether it is an int or a float."""
    floats = (float, np.floating)
    return [str(int(each)) if isinstance(each, floats) and each.is_integer() else str(each) for each in values]


def _or_mend(texts: Sequence[str]) -> str:
    """What to do besides, if most texts are numbers."""
    others = [text for text in texts if not _is_number(text)]
    return f", or correct {others[0]!r:.60} if it is to have numbers" if 0 < len(others) < len(texts) / 2 else ""


def _is_number(text: str) -> bool:
    try:
        number(text)
    except ValueError:
        return False
    return True
