"""Samples that are dicts of named features, as rows of numbers, and running means and variances of these."""

import copy
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from altmin.common.describe import describe
from altmin.common.errors import demand

Array = NDArray[np.float64]
FARTHEST = 10.0
"""A standardised value beyond this counts as this: one outlier must not undo what a stream has taught."""

LARGEST = 1e100
"""Beyond, the square of a value and sums of squares may not be finite."""


class Category(str):
    """The name of a feature that is 1 where a text has a value, and 0 elsewhere: "colour=red"."""

    __slots__ = ()


def as_numbers(x: Mapping[Hashable, Any]) -> Mapping[Hashable, Any]:
    """A sample with a feature of its own, of value 1, for each of its texts.

    >>> as_numbers({"age": 3.0, "colour": "red"})
    {'age': 3.0, 'colour=red': 1.0}
    """
    if not any(isinstance(value, str) for value in x.values()):
        return x
    return {
        (Category(f"{name}={value}") if isinstance(value, str) else name): (1.0 if isinstance(value, str) else value)
        for name, value in x.items()
    }


class Features:
    """The features seen so far, in the order of their columns. absent: what one that a sample lacks counts as: "mean",
    unknown, so that the network is shown its mean; "zero", for counts and indicators. A `Category` counts as zero."""

    def __init__(self, absent: str = "mean"):
        if absent not in ("mean", "zero"):
            raise ValueError(f"absent is 'mean' or 'zero', given {absent!r}")
        self.absent = absent
        self.names: list[Hashable] = []
        self.known: set[Hashable] = set()
        self.categories: list[int] = []
        """The columns of categories."""

    def new(self, names: Iterable[Hashable]) -> list[Hashable]:
        """Those among the names that have no column yet, in an order that does not depend on theirs. ValueError for a
        name that could not be found again, such as NaN."""
        found = sorted(set(names) - self.known, key=lambda name: (type(name).__name__, str(name)))
        if found and any(name != name for name in found):
            raise ValueError("a feature's name equals itself, given NaN (nothing was learnt)")
        return found

    def add(self, names: Iterable[Hashable]) -> None:
        """Gives names a column each."""
        first = len(self.names)
        self.names.extend(names)
        self.known.update(self.names[first:])
        self.categories += [j for j in range(first, len(self.names)) if isinstance(self.names[j], Category)]

    def remove(self, count: int) -> None:
        """Leaves the first `count` names."""
        self.known.difference_update(self.names[count:])
        del self.names[count:]
        self.categories = [j for j in self.categories if j < count]

    def row(self, x: Mapping[Hashable, Any], new: Sequence[Hashable] = ()) -> Array:
        """One sample (columns + new,): NaN, or 0 with absent="zero" and of a category, where it has no value (also None
        and NaN). Other features are left out. ValueError for a value that is no number."""
        missing, names = np.nan, [*self.names, *new] if new else self.names
        try:
            values = np.array([x.get(name, missing) for name in names], dtype=np.float64)
        except Exception:  # of any kind: a value's own conversion may raise it
            raise _no_number(x) from None
        if values.ndim != 1:
            raise _no_number(x)
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
            raise _too_large(names[int(np.argwhere(np.abs(values) > LARGEST)[0, -1])])
        if self.absent == "zero":
            return np.nan_to_num(values, nan=0.0)
        zero = [j for j in range(len(self.names), len(names)) if isinstance(names[j], Category)] + self.categories
        if zero:
            values[..., zero] = np.nan_to_num(values[..., zero], nan=0.0)
        return values


def demand_sample(x: Any) -> None:
    """TypeError unless a sample is a dict."""
    if not isinstance(x, Mapping):
        raise TypeError(f"a sample is a dict of features, such as {{'age': 3.0}}, given {type(x).__name__}")


def table_of(X: Any) -> tuple[list[Hashable], Array]:
    """The names of a DataFrame's columns, and its numbers. ValueError for a column that has none, or the name of
    another."""
    if not hasattr(X, "columns") or not hasattr(X, "to_numpy"):
        raise TypeError(f"a mini-batch is a pandas DataFrame with a column per feature, given {type(X).__name__}")
    names = list(X.columns)
    if len(set(names)) < len(names):
        name = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"two columns are called {name!r}; each feature has a name of its own (nothing was learnt)")
    if texts := [name for name in names if _is_text(X[name]).any()]:
        names, X = _without_texts(X, texts)
    try:
        return names, X.to_numpy(dtype=np.float64)
    except Exception:  # of any kind: a value's own conversion may raise it
        for name in names:
            for value in X[name]:
                _demand_number(name, value)
        raise


def _is_text(column: Any) -> Any:
    """Of every entry of a Series."""
    return column.map(lambda value: isinstance(value, str))


def _without_texts(X: Any, texts: Sequence[Hashable]) -> tuple[list[Hashable], Any]:
    """A DataFrame with a column for each text, as `as_numbers` has a feature, after the others; the texts themselves
    are absent from theirs."""
    X, found = X.copy(), {}
    for name in texts:
        column = X[name]
        is_text = _is_text(column)
        for value in dict.fromkeys(column[is_text]):
            found[Category(f"{name}={value}")] = column.eq(value).to_numpy(dtype=np.float64)
        X[name] = column.where(~is_text, None)
    kept = [name for name in X.columns if name not in texts or X[name].notna().any()]
    X = X[kept]
    for name, values in found.items():
        X.insert(len(X.columns), name, values)
    return [*kept, *found], X


def targets_of(y: Any) -> list[Any]:
    """The entries of a Series, an array or a list of targets. TypeError for anything else."""
    found = y.tolist() if hasattr(y, "tolist") else y
    if isinstance(found, str | bytes | Mapping) or hasattr(found, "columns") or not isinstance(found, Iterable):
        raise TypeError(f"targets are a Series or a list with one for each sample, given {type(y).__name__}")
    return list(found)


def _no_number(x: Mapping[Hashable, Any]) -> Exception:
    """The error for a sample with a value that is no number."""
    try:
        for name, value in x.items():
            _demand_number(name, value)
    except ValueError as error:
        return error
    raise AssertionError("every value is a number")


def _demand_number(name: Hashable, value: Any) -> None:
    """ValueError, which names the feature, unless a value is a number or None."""
    try:
        number = np.array(np.nan if value is None else value, dtype=np.float64)
    except OverflowError:
        raise _too_large(name) from None
    except Exception:  # of any kind: a value's own conversion may raise it
        number = np.zeros(0)
    if number.ndim:
        raise ValueError(
            f"feature {name!r} is {describe(value):.40}, a number or a text is expected (nothing was learnt)"
        )


def _too_large(name: Hashable) -> ValueError:
    return ValueError(f"feature {name!r} is infinite or beyond {LARGEST:g}; leave it out (nothing was learnt)")


class RunningStatistics:
    """Running mean and variance of each of `size` features that come and go. forget: f, from above 0 to 1, where
    nothing fades.

    Of every feature, with the factor f on the past before each of its samples (Welford's recursion for f = 1; West,
    1979):

        w <- f w + 1,   d = x - m,   m <- m + d / w,   s <- f s + d (x - m),

    so that m and s / w are the mean and the variance of all its samples, each weighted by f^(number of later ones).
    Arrays are replaced and never written to.
    """

    def __init__(self, size: int = 0, forget: float = 1.0):
        demand("RunningStatistics", "forget", forget, above=True)
        if forget > 1:
            raise ValueError(f"forget of the running statistics lies above 0 and is at most 1, given {forget!r}")
        self.forget, self.total = forget, 0.0
        self.weight, self.mean, self.scatter = np.zeros(size), np.zeros(size), np.zeros(size)

    def __deepcopy__(self, memo: dict[int, Any]) -> "RunningStatistics":
        return copy.copy(self)  # which may share the arrays

    @property
    def variance(self) -> Array:
        """s / w, 0 of a feature that has not been seen."""
        return self.scatter / np.maximum(self.weight, 1.0)

    def grow(self, features: int, seen: bool | Sequence[bool] = False) -> None:
        """Adds features. seen: whether they, or which of them, count as having been zero in all samples so far."""
        more = np.zeros(features)
        self.weight = np.concatenate([self.weight, more + np.where(seen, self.total, 0.0)])
        self.mean, self.scatter = np.concatenate([self.mean, more]), np.concatenate([self.scatter, more])

    def update(self, x: Array) -> None:
        """Takes one sample (size,). A feature that is NaN is absent: nothing of it changes."""
        self.total = self.forget * self.total + 1
        d = x - self.mean
        weight = self.forget * self.weight + 1
        mean = self.mean + d / weight
        scatter = self.forget * self.scatter + d * (x - mean)
        absent = np.isnan(d)
        if absent.any():
            weight, mean, scatter = (
                np.where(absent, old, new)
                for old, new in ((self.weight, weight), (self.mean, mean), (self.scatter, scatter))
            )
        self.weight, self.mean, self.scatter = weight, mean, scatter

    def standardise(self, x: Array) -> Array:
        """(x - m) / sqrt(s / w), between -FARTHEST and FARTHEST; 0 for a feature that is absent or has not varied yet.
        x: (..., size)."""
        varies = self.scatter > 0
        z = np.minimum(
            np.maximum((x - self.mean) / np.sqrt(np.where(varies, self.variance, np.inf)), -FARTHEST), FARTHEST
        )
        known = ~np.isnan(z)
        return z if known.all() else np.where(known, z, 0.0)
