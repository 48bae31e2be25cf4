"""The target column of a table: classes by their names, or numbers in a unit of their own."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from altmin.common.errors import unknown
from altmin.data.columns import category_names, numbers_of
from altmin.data.standardise import Scale

TASKS = ("auto", "classification", "regression")
FEW = 20
"""Different whole numbers up to which they are taken for classes."""


@dataclass(frozen=True)
class Classes:
    """A target that is one of several classes: the network has an output for each, in this order."""

    names: Sequence[str]

    @classmethod
    def fit(cls, name: str, values: np.ndarray) -> "Classes":
        """Those of a column, numbers in their order and texts in that of the alphabet. ValueError unless there are at
        least two, and fewer than half as many as rows."""
        found = category_names(values)
        names = sorted(set(found), key=_in_order)
        if len(names) < 2:
            raise ValueError(f"column {name!r} has one class, {names[0]!r:.60}; there is nothing to learn from it")
        if len(names) > max(FEW, len(found) / 2):
            raise ValueError(
                f"column {name!r} has {len(names):,} classes in {len(found):,} rows; for numbers give --task regression"
            )
        return cls(names)

    @property
    def outputs(self) -> int:
        return len(self.names)

    def encode(self, name: str, values: np.ndarray) -> np.ndarray:
        """The number of each value's class, int64. ValueError for one that is none of them."""
        place = {each: n for n, each in enumerate(self.names)}
        found = np.array([place.get(each, -1) for each in category_names(values)], dtype=np.int64)
        if (wrong := np.flatnonzero(found < 0)).size:
            row, known = wrong[0], ", ".join(self.names)
            raise ValueError(
                f"column {name!r} has {values[row]!r:.60} in row {row + 1}, which is no class of: {known:.200}"
            )
        return found

    def decode(self, output: np.ndarray) -> np.ndarray:
        """The names of the classes with the largest output."""
        return np.array(self.names, dtype=object)[output.argmax(1)]


@dataclass(frozen=True)
class Quantity:
    """A target that is a number: the network's one output is (value - mean) / std."""

    mean: float
    std: float

    @classmethod
    def fit(cls, name: str, values: np.ndarray) -> "Quantity":
        numbers = numbers_of(name, values)
        if (numbers == numbers[0]).all():
            raise ValueError(f"column {name!r} is {numbers[0]:g} in every row; there is nothing to learn from it")
        scale = Scale.of(numbers[:, None])
        return cls(float(scale.mean[0]), float(scale.std[0]))

    @property
    def outputs(self) -> int:
        return 1

    def encode(self, name: str, values: np.ndarray) -> np.ndarray:
        """Standardised values, float32 (rows, 1). ValueError for a text and for a missing value."""
        numbers = numbers_of(name, values)
        if (gone := np.flatnonzero(np.isnan(numbers))).size:
            raise ValueError(f"column {name!r} has no value in row {gone[0] + 1}; leave that row out")
        return ((numbers - self.mean) / self.std).astype(np.float32)[:, None]

    def decode(self, output: np.ndarray) -> np.ndarray:
        """Outputs (rows, 1) in the unit of the target, float64 (rows,)."""
        return output[:, 0].astype(np.float64) * self.std + self.mean


Target = Classes | Quantity


def are_classes(values: np.ndarray, task: str = "auto") -> bool:
    """Whether a target is taken for classes: as the task says or, if that is "auto", if it has texts, truth values or
    few different whole numbers."""
    if task not in TASKS:
        raise unknown("task", task, TASKS)
    if task != "auto" or values.dtype.kind not in "fiu":
        return task != "regression"
    different = np.unique(values)
    return bool((different == np.round(different)).all()) and len(different) <= max(2, min(FEW, len(values) // 2))


def target_to_json(target: Target) -> dict[str, Any]:
    return asdict(target)


def target_from_json(given: Any) -> Target:
    """What `target_to_json` gave. ValueError for anything else."""
    try:
        return Classes(**given) if "names" in given else Quantity(**given)
    except TypeError:
        raise ValueError(f"this is no target, as altmin writes it: {given!r:.60}") from None


def _in_order(name: str) -> tuple[bool, float, str]:
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name
