"""Standardising every split by the mean and the standard deviation of the training split."""

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
        """The statistics of `samples` (n, channels, ...), over all axes but the second, in one pass and bounded memory.

        Sums are of differences to the first value of each channel. That keeps them accurate, and makes them exactly
        zero for a channel that never varies, whose standard deviation is then set to 1.
        """
        channels = samples.shape[1]
        shift = samples[0].reshape(channels, -1)[:, :1].astype(np.float64)
        total, squares = np.zeros(channels), np.zeros(channels)
        for part in _chunks(samples):
            off = samples[part].reshape(-1, channels, samples[0].size // channels).astype(np.float64) - shift
            total += off.sum(axis=(0, 2))
            squares += np.einsum("ncv,ncv->c", off, off)
        count = samples.size // channels
        off_mean = total / count
        std = np.sqrt(np.maximum(squares / count - off_mean**2, 0))
        return cls(off_mean + shift[:, 0], np.where(std > 0, std, 1.0))

    @classmethod
    def remembered(cls, key: Hashable, training: Callable[[], np.ndarray]) -> "Scale":
        """`Scale.of(training())`, computed once per process for each key.

        The key must identify the content, for instance by a checksum. Other splits then need not read it again.
        """
        if key not in _known:
            _known[key] = cls.of(training())
        return _known[key]

    def apply(self, samples: np.ndarray) -> torch.Tensor:
        """(samples - mean) / std as a new float32 tensor of the same shape."""
        result = np.empty(samples.shape, np.float32)
        wide = (-1, *[1] * (samples.ndim - 2))
        mean, std = self.mean.reshape(wide), self.std.reshape(wide)
        for part in _chunks(samples):
            result[part] = (samples[part].astype(np.float64) - mean) / std
        return torch.from_numpy(result)


def labels(values: np.ndarray) -> torch.Tensor:
    """Class labels as int64, the type that PyTorch's losses take."""
    return torch.from_numpy(values.astype(np.int64))


def _chunks(samples: np.ndarray) -> Iterator[slice]:
    step = max(1, CHUNK // samples[0].size)
    return (slice(start, start + step) for start in range(0, len(samples), step))
