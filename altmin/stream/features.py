"""Samples that are dicts of named features, as rows of numbers, and running means and variances of these."""

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
    """Return a sample with a feature of value 1 in place of each of its texts. TypeError if it is no dict.

    >>> as_numbers({"age": 3.0, "colour": "red"})
    {'age': 3.0, 'colour=red': 1.0}
    """
    if not isinstance(x, Mapping):
        raise TypeError(f"a sample is a dict of features, such as {{'age': 3.0}}, given {type(x).__name__}")
    if not any(isinstance(value, str) for value in x.values()):
        return x
    return {
        (Category(f"{name}={value}") if isinstance(value, str) else name): (1.0 if isinstance(value, str) else value)
        for name, value in x.items()
    }


class Features:
    """The features seen so far, in the order of their columns."""

    def __init__(self) -> None:
        self.names: list[Hashable] = []
        self.known: set[Hashable] = set()
        self.categories: list[int] = []
        """The columns of categories."""

    def new(self, names: Iterable[Hashable]) -> list[Hashable]:
        """Return those among the names that have no column yet, in an order that does not depend on theirs. ValueError
        for a name that could not be found again, such as NaN."""
        unseen = sorted(set(names) - self.known, key=lambda name: (type(name).__name__, str(name)))
        if any(name != name for name in unseen):
            raise ValueError("a feature's name equals itself, given NaN (nothing was learnt)")
        return unseen

    def add(self, names: Iterable[Hashable]) -> None:
        """Give each name a column."""
        first = len(self.names)
        self.names.extend(names)
        self.known.update(self.names[first:])
        self.categories += [j for j in range(first, len(self.names)) if isinstance(self.names[j], Category)]

    def row(self, x: Mapping[Hashable, Any], new: Sequence[Hashable] = ()) -> Array:
        """Return one sample (columns + new,): NaN, or 0 of a category, where it has no value (also None and NaN). Other
        features are left out. ValueError for a value that is no number, infinite or beyond `LARGEST`."""
        names = [*self.names, *new] if new else self.names
        try:
            values = np.array([x.get(name, np.nan) for name in names], dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            values = np.zeros((0, 0))
        if values.ndim != 1 or (np.abs(values) > LARGEST).any():  # NaN is not
            name = next(name for name in names if name in x and not _is_number(x[name]))
            raise ValueError(
                f"feature {name!r} is {describe(x[name]):.40}; a number below {LARGEST:g} or a text is expected "
                "(nothing was learnt)"
            )
        zero = [j for j in range(len(self.names), len(names)) if isinstance(names[j], Category)] + self.categories
        if zero:
            values[zero] = np.nan_to_num(values[zero], nan=0.0)
        return values


def _is_number(value: Any) -> bool:
    try:
        number = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return False
    return number.ndim == 0 and not abs(float(number)) > LARGEST


class RunningStatistics:
    """Running mean and variance of each of `size` features that come and go. forget: f, from above 0 to 1, where
    nothing fades.

    Of every feature, with the factor f on the past before each of its samples (Welford's recursion for f = 1; West,
    1979):

        w <- f w + 1,   d = x - m,   m <- m + d / w,   s <- f s + d (x - m),

    so that m and s / w are the mean and the variance of all its samples, each weighted by f^(number of later ones).
    """

    def __init__(self, size: int, forget: float = 1.0):
        demand("RunningStatistics", "forget", forget, above=True)
        if forget > 1:
            raise ValueError(f"forget of the running statistics lies above 0 and is at most 1, given {forget!r}")
        self.forget, self.total = forget, 0.0
        self.weight, self.mean, self.scatter = np.zeros(size), np.zeros(size), np.zeros(size)

    @property
    def variance(self) -> Array:
        """Variance s / w, 0 of a feature that has not been seen."""
        return self.scatter / np.maximum(self.weight, 1.0)

    def grow(self, features: int, seen: bool | Sequence[bool] = False) -> None:
        """Add features. seen: whether they, or which of them, count as having been zero in all samples so far."""
        more = np.zeros(features)
        self.weight = np.concatenate([self.weight, more + np.where(seen, self.total, 0.0)])
        self.mean, self.scatter = np.concatenate([self.mean, more]), np.concatenate([self.scatter, more])

    def update(self, x: Array) -> None:
        """Take one sample (size,). A feature that is NaN is absent: nothing of it changes."""
        self.total = self.forget * self.total + 1
        d = x - self.mean
        weight = self.forget * self.weight + 1
        mean = self.mean + d / weight
        scatter = self.forget * self.scatter + d * (x - mean)
        absent = np.isnan(d)
        if absent.any():
            pairs = ((self.weight, weight), (self.mean, mean), (self.scatter, scatter))
            weight, mean, scatter = (np.where(absent, old, new) for old, new in pairs)
        self.weight, self.mean, self.scatter = weight, mean, scatter

    def standardise(self, x: Array) -> Array:
        """Return (x - m) / sqrt(s / w), between -FARTHEST and FARTHEST; 0 for a feature that is absent or has not
        varied yet. x: (..., size)."""
        varies = self.scatter > 0
        z = np.minimum(
            np.maximum((x - self.mean) / np.sqrt(np.where(varies, self.variance, np.inf)), -FARTHEST), FARTHEST
        )
        known = ~np.isnan(z)
        return z if known.all() else np.where(known, z, 0.0)
