"""Running means and variances of features that come and go.

Of every feature, with the factor f on the past before each of its samples (Welford's recursion for f = 1; West, 1979):

    w <- f w + 1,   d = x - m,   m <- m + d / w,   s <- f s + d (x - m),

so that m and s / w are the mean and the variance of all its samples, each weighted by f^(number of later ones).
"""

import numpy as np
from numpy.typing import NDArray

from altmin.common.errors import demand

Array = NDArray[np.float64]
FARTHEST = 10.0
"""A standardised value beyond this counts as this: one outlier must not undo what a stream has taught."""


class RunningStatistics:
    """Mean and variance of each of `size` features. forget: f, from above 0 to 1, where nothing fades."""

    def __init__(self, size: int = 0, forget: float = 1.0):
        demand("RunningStatistics", "forget", forget, above=True)
        if forget > 1:
            raise ValueError(f"forget of the running statistics lies above 0 and is at most 1, given {forget!r}")
        self.forget, self.total = forget, 0.0
        self.weight, self.mean, self.scatter = np.zeros(size), np.zeros(size), np.zeros(size)

    @property
    def variance(self) -> Array:
        """s / w, 0 of a feature that has not been seen."""
        return self.scatter / np.maximum(self.weight, 1.0)

    def grow(self, features: int, seen: bool = False) -> None:
        """Adds features. seen: whether they count as having been zero in all samples so far."""
        more = np.zeros(features)
        self.weight = np.concatenate([self.weight, more + (self.total if seen else 0.0)])
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
