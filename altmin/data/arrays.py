"""Arrays of numbers, such as images, as the inputs of a network: standardised by the training rows."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from altmin.data.columns import Table
from altmin.data.standardise import Scale


@dataclass(frozen=True)
class Arrays:
    """How the array x (rows, *shape) of a table becomes the inputs of a network: every feature of rows (features,) and
    every channel of images (channels, height, width) is standardised; sequences (steps, features) are as a whole."""

    shape: Sequence[int]
    mean: Sequence[float]
    std: Sequence[float]

    @classmethod
    def fit(cls, table: Table) -> "Arrays":
        """Learn from the training rows. ValueError for numbers that are not finite."""
        x = table["x"]
        _demand_finite(x)
        scale = Scale.of(_in_channels(x))
        return cls(x.shape[1:], scale.mean.tolist(), scale.std.tolist())

    def encode(self, table: Table) -> np.ndarray:
        """float32 (rows, *shape). ValueError if there is no x of this shape, or not all of it is finite."""
        x = table.get("x")
        if x is None or x.shape[1:] != tuple(self.shape):
            given = f"columns {', '.join(table):.200}" if x is None else f"x of {x.shape}"
            raise ValueError(f"the model takes an array x of (rows, {', '.join(map(str, self.shape))}), given {given}")
        _demand_finite(x)
        scale = Scale(np.array(self.mean), np.array(self.std))
        return scale.apply(_in_channels(x)).numpy().reshape(x.shape)

    @property
    def categories(self) -> list[str]:
        return []

    def to_json(self) -> dict[str, Any]:
        """All of it in values that JSON has."""
        return asdict(self)

    @classmethod
    def from_json(cls, given: Any) -> "Arrays":
        """What `to_json` gave. ValueError for anything else."""
        try:
            return cls(**{**given, "shape": tuple(given["shape"])})
        except (TypeError, KeyError):
            raise ValueError(f"these are no arrays, as altmin writes them: {given!r:.60}") from None


def _in_channels(x: np.ndarray) -> np.ndarray:
    return x[:, None] if x.ndim == 3 else x


def _demand_finite(x: np.ndarray) -> None:
    if len(wrong := np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(1))):
        raise ValueError(
            f"x has a number that is missing or infinite in row {wrong[0]}, counted from 0; replace it, or give the "
            "table as CSV or Parquet, where values may be missing"
        )
