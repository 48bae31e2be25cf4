"""Standardising every split by the mean and the standard deviation of the training split."""

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

CHUNK = 1 << 21  # values in float64 at a time: 16 MiB, whatever the size of the data set

_known: dict[Hashable, "Scale"] = {}


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation per channel, the second axis of the samples."""

    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def of(cls, samples: np.ndarray) -> "Scale":
        """Return the statistics of `samples` (n, channels, ...), over all axes but the second, in bounded memory.

        The standard deviation of a channel that never varies is set to 1. Chunks are merged by (Chan, Golub, LeVeque
        1983), for counts n and m, means a and b, sums of squares about them: mean = a + (b - a) m / (n + m),
        squares = squares_a + squares_b + (b - a)^2 n m / (n + m).
        """
        count, mean, squares = 0, np.zeros(()), np.zeros(())
        for chunk in _chunks(samples):
            values = samples[chunk].reshape(-1, samples.shape[1], math.prod(samples.shape[2:])).astype(np.float64)
            new = len(values) * values.shape[2]
            first = values[0, :, 0]
            center = first + (values - first[:, None]).mean(axis=(0, 2))  # exact where a feature never varies
            off = center - mean
            squares = squares + ((values - center[:, None]) ** 2).sum(axis=(0, 2))
            squares = squares + off**2 * count * new / (count + new)
            mean = mean + off * new / (count + new) if count else center
            count += new
        std = np.sqrt(squares / count)
        return cls(mean, np.where(std > 0, std, 1.0))

    @classmethod
    def remembered(cls, key: Hashable, training: Callable[[], np.ndarray]) -> "Scale":
        """Return `Scale.of(training())`, computed once per process for each key, which identifies the content."""
        if key not in _known:
            _known[key] = cls.of(training())
        return _known[key]

    def apply(self, samples: np.ndarray) -> torch.Tensor:
        """Return (samples - mean) / std as a new float32 tensor of the same shape."""
        result = np.empty(samples.shape, np.float32)
        wide = (-1, *[1] * (samples.ndim - 2))
        mean, std = self.mean.reshape(wide), self.std.reshape(wide)
        for part in _chunks(samples):
            result[part] = (samples[part].astype(np.float64) - mean) / std
        return torch.from_numpy(result)


def _chunks(samples: np.ndarray) -> Iterator[slice]:
    step = max(1, CHUNK // max(1, math.prod(samples.shape[1:])))
    return (slice(start, start + step) for start in range(0, len(samples), step))
