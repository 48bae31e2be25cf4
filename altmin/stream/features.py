"""Samples that are dicts of named features, as rows of numbers."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from altmin.stream.statistics import Array

LARGEST = 1e100
"""Beyond, the square of a value and sums of squares may not be finite."""


class Features:
    """The features seen so far, in the order of their columns. absent: what one that a sample lacks counts as: "mean",
    unknown, so that the network is shown its mean; "zero", for counts and indicators."""

    def __init__(self, absent: str = "mean"):
        if absent not in ("mean", "zero"):
            raise ValueError(f"absent is 'mean' or 'zero', given {absent!r}")
        self.absent = absent
        self.names: list[Hashable] = []
        self.known: set[Hashable] = set()

    def new(self, names: Iterable[Hashable]) -> list[Hashable]:
        """Those among the names that have no column yet, in an order that does not depend on theirs."""
        return sorted(set(names) - self.known, key=lambda name: (type(name).__name__, str(name)))

    def add(self, names: Iterable[Hashable]) -> None:
        """Gives names a column each."""
        self.names.extend(names)
        self.known.update(self.names)

    def row(self, x: Mapping[Hashable, Any], new: Sequence[Hashable] = ()) -> Array:
        """One sample (columns + new,): NaN, or 0 with absent="zero", where it has no value (also None and NaN). Other
        features are left out. ValueError for a value that is no number."""
        if not isinstance(x, Mapping):
            raise TypeError(f"a sample is a dict of features, such as {{'age': 3.0}}, given {x!r:.60}")
        missing, names = np.nan, [*self.names, *new] if new else self.names
        try:
            values = np.array([x.get(name, missing) for name in names], dtype=np.float64)
        except (TypeError, ValueError):
            raise self._no_number(x) from None
        if values.ndim != 1:
            raise self._no_number(x)
        return self._checked(values, names)

    def rows(self, columns: Sequence[Hashable], table: Array, new: Sequence[Hashable] = ()) -> Array:
        """As `row` of every row of a table (samples, columns) with these names of its columns."""
        names = [*self.names, *new]
        place = {name: j for j, name in enumerate(columns)}
        found = np.full((len(table), len(names)), np.nan)
        here = [i for i, name in enumerate(names) if name in place]
        found[:, here] = table[:, [place[names[i]] for i in here]]
        return self._checked(found, names)

    def _checked(self, values: Array, names: Sequence[Hashable]) -> Array:
        if (np.abs(values) > LARGEST).any():  # NaN is not
            name = names[int(np.argwhere(np.abs(values) > LARGEST)[0, -1])]
            raise ValueError(
                f"feature {name!r} is infinite or beyond {LARGEST:g}; leave out what is unknown (nothing was learnt)"
            )
        return np.nan_to_num(values, nan=0.0) if self.absent == "zero" else values

    def _no_number(self, x: Mapping[Hashable, Any]) -> ValueError:
        for name, value in x.items():
            try:
                float("nan" if value is None else value)
            except (TypeError, ValueError):
                return ValueError(
                    f"feature {name!r} is {value!r:.40}, a number is expected; encode it first, such as by "
                    "river.preprocessing.OneHotEncoder() (nothing was learnt)"
                )
        raise AssertionError("every value is a number")


def table_of(X: Any) -> tuple[list[Hashable], Array]:
    """The names of a DataFrame's columns, and its numbers. ValueError for a column that has none."""
    try:
        return list(X.columns), X.to_numpy(dtype=np.float64)
    except AttributeError:
        raise TypeError(f"a mini-batch is a pandas DataFrame with a column per feature, given {X!r:.60}") from None
    except (TypeError, ValueError):
        for name in X.columns:
            try:
                X[name].to_numpy(dtype=np.float64)
            except (TypeError, ValueError):
                raise ValueError(
                    f"column {name!r} holds no numbers; encode it first, such as by "
                    "river.preprocessing.OneHotEncoder() (nothing was learnt)"
                ) from None
        raise
