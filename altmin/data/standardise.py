"""Standardising every split by the mean and the standard deviation of the training split."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
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
        """The statistics of `samples` (n, channels, ...), over all axes but the second, in bounded memory."""
        return cls.streamed([samples])

    @classmethod
    def streamed(cls, parts: "Iterable[np.ndarray]") -> "Scale":
        """As `of`, for samples that come in parts, with one chunk at a time in memory. The standard deviation of
        a channel that never varies is set to 1.

        Chunks are merged by (Chan, Golub, LeVeque 1983), for counts n and m, means a and b, sums of squares about them:
        mean = a + (b - a) m / (n + m), squares = squares_a + squares_b + (b - a)^2 n m / (n + m).
        """
        count, mean, squares = 0, np.zeros(()), np.zeros(())
        for samples in (part[chunk] for part in parts if len(part) for chunk in _chunks(part)):
            values = samples.reshape(len(samples), samples.shape[1], -1).astype(np.float64)
            new = len(samples) * values.shape[2]
            first = values[0, :, 0]
            own = first + (values - first[:, None]).mean(axis=(0, 2))  # exactly its value where a feature never varies
            off = own - mean
            squares = squares + ((values - own[:, None]) ** 2).sum(axis=(0, 2)) + off**2 * count * new / (count + new)
            mean = mean + off * new / (count + new) if count else own
            count += new
        assert count, "there are samples"
        std = np.sqrt(squares / count)
        return cls(mean, np.where(std > 0, std, 1.0))

    @classmethod
    def remembered(cls, key: Hashable, training: Callable[[], Iterable[np.ndarray]]) -> "Scale":
        """`Scale.streamed(training())`, computed once per process for each key.

        The key must identify the content, for instance by a checksum. Other splits then need not read it again.
        """
        if key not in _known:
            _known[key] = cls.streamed(training())
        return _known[key]

    def apply(self, samples: np.ndarray) -> torch.Tensor:
        """(samples - mean) / std as a new float32 tensor of the same shape."""
        result = np.empty(samples.shape, np.float32)
        wide = (-1, *[1] * (samples.ndim - 2))
        mean, std = self.mean.reshape(wide), self.std.reshape(wide)
        for part in _chunks(samples):
            result[part] = (samples[part].astype(np.float64) - mean) / std
        return torch.from_numpy(result)


def _chunks(samples: np.ndarray) -> Iterator[slice]:
    step = max(1, CHUNK // max(1, math.prod(samples.shape[1:])))
    return (slice(start, start + step) for start in range(0, len(samples), step))
