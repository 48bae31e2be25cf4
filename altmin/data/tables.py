"""A table of one's own as data to train on: which rows are for training, and what is learnt from them."""

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from altmin.common.errors import unknown
from altmin.data.arrays import Arrays
from altmin.data.columns import Columns, Table, missing_values, numbers_of
from altmin.data.table_files import read_table
from altmin.data.targets import Classes, Quantity, Target, are_classes, target_from_json, target_to_json


@dataclass(frozen=True)
class Encoding:
    """How rows of a table become samples and targets of a network. target_name: the column of the target."""

    inputs: Columns | Arrays
    target: Target
    target_name: str

    @property
    def sample_shape(self) -> tuple[int, ...]:
        inputs = self.inputs
        return tuple(inputs.shape) if isinstance(inputs, Arrays) else (len(inputs.features),)

    def read(self, path: str | Path) -> Table:
        """A table whose columns have the types that they had in training."""
        texts = [self.target_name] if isinstance(self.target, Classes) else []
        return read_table(path, [*self.inputs.categories, *texts])

    def samples(self, table: Table) -> Tensor:
        """The inputs of all rows, float32 (rows, *sample_shape)."""
        return torch.from_numpy(self.inputs.encode(table))

    def targets(self, table: Table) -> Tensor:
        """The targets of all rows: int64 classes (rows,), or standardised numbers, float32 (rows, 1)."""
        return torch.from_numpy(self.target.encode(self.target_name, _column(table, self.target_name)))

    def to_json(self) -> dict[str, Any]:
        """All of it in values that JSON has."""
        kind = "array" if isinstance(self.inputs, Arrays) else "columns"
        return {kind: self.inputs.to_json(), "target": target_to_json(self.target), "target_name": self.target_name}

    @classmethod
    def from_json(cls, given: Any) -> "Encoding":
        """What `to_json` gave. ValueError for anything else."""
        try:
            array = "array" in given
            inputs = Arrays.from_json(given["array"]) if array else Columns.from_json(given["columns"])
            return cls(inputs, target_from_json(given["target"]), given["target_name"])
        except (TypeError, KeyError):
            raise ValueError(f"this is no encoding of a table, as altmin writes it: {given!r:.60}") from None


@dataclass(frozen=True)
class Choices:
    """What the rows of a table are to be used for.

    target: the column to predict; y in a .npz file. task: "classification", "regression", or "auto" for the one that
    the target suggests. drop: columns that are left out. test_part: the part of the rows that is held back to test, and
    as large a part to validate if that is asked for. seed: which rows these are.
    """

    target: str | None = None
    task: str = "auto"
    drop: Collection[str] = ()
    test_part: float = 0.2
    seed: int = 0


@dataclass(frozen=True)
class TableData:
    """A table, its parts, and what was learnt from the part "train"; `Dataset` without files."""

    name: str
    encoding: Encoding
    parts: Mapping[str, np.ndarray]
    table: Table
    tokens: bool = False

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return self.encoding.sample_shape

    @property
    def classes(self) -> int:
        """How many outputs a network has: one for each class, or one for a number."""
        return self.encoding.target.outputs

    def load(self, split: str) -> tuple[Tensor, Tensor]:
        """Samples and targets of one of the parts."""
        rows = {name: values[self.parts[split]] for name, values in self.table.items()}
        return self.encoding.samples(rows), self.encoding.targets(rows)

    @classmethod
    def read(cls, path: str | Path, choices: Choices, validation: bool = False) -> "TableData":
        """A table from a file. Rows without a target are left out, with a warning.

        The test rows are the same with validation rows and without. ValueError, in one sentence, for a table from which
        nothing can be learnt.
        """
        table, path = read_table(path), Path(path)
        name = _target_name(path, table, choices)
        table = _without(table, choices.drop, name)
        _check_numbers(table, name if choices.task == "regression" else None)
        table = with_target(table, name)
        values = table[name]
        classes = Classes.fit(name, values) if are_classes(values, choices.task) else None
        strata = np.zeros(len(values)) if classes is None else classes.encode(name, values)
        parts = split_rows(strata, choices.test_part, choices.seed, validation)
        target = classes or Quantity.fit(name, values[parts["train"]])
        train = {each: column[parts["train"]] for each, column in table.items() if each != name}
        arrays = "x" in train and train["x"].ndim > 1
        inputs = Arrays.fit(train) if arrays else Columns.fit(train)
        return cls(path.name, Encoding(inputs, target, name), parts, table)


def split_rows(strata: np.ndarray, part: float, seed: int, validation: bool = False) -> dict[str, np.ndarray]:
    """Rows to train and to test, with `validation` also as many to validate as to test, each in a random order.

    Every stratum, such as a class, has its share of each, up to a row. The rows to test do not depend on `validation`.
    ValueError if no row is left to train.
    """
    rows, count = len(strata), max(1, round(part * len(strata)))
    if count * (1 + validation) >= rows:
        raise ValueError(
            f"the table has {rows} row{'s' * (rows > 1)} with a target, too few to train on some and hold back "
            f"{part:g} of them {'twice, to validate and to test' if validation else 'to test'}"
        )
    order = np.random.default_rng(seed).permutation(rows)
    left, parts = order, {}
    for name in ["test", *["validation"] * validation]:
        sorted_ = left[np.argsort(strata[left], kind="stable")]
        place = np.arange(len(left))
        parts[name] = sorted_[(place + 1) * count // len(left) > place * count // len(left)]  # evenly spaced
        left = left[~np.isin(left, parts[name])]
    return {"train": left, **parts}


def _target_name(path: Path, table: Table, choices: Choices) -> str:
    if choices.target is not None:
        return choices.target
    if path.suffix == ".npz":
        if "y" not in table:
            raise ValueError(f"{path} has no array y, what is to be predicted from x; give both")
        return "y"
    raise ValueError(f"--target names the column of {path} to predict, one of: {', '.join(table):.500}")


def _without(table: Table, drop: Collection[str], target: str) -> Table:
    """The table without some columns. ValueError for one that there is not, and for the target."""
    for name in drop:
        _column(table, name, "--drop")
    if target in drop:
        raise ValueError(f"--drop leaves out {target!r}, which is the --target")
    return {name: values for name, values in table.items() if name not in drop}


def _check_numbers(table: Table, target: str | None) -> None:
    """ValueError for an infinite number in any column, and for a text in the target. Rows have their numbers in the
    file here, which those of a part have not."""
    for name, values in table.items():
        if values.ndim == 1 and (name == target or values.dtype.kind == "f"):
            numbers_of(name, values)


def _column(table: Table, name: str, option: str = "--target") -> np.ndarray:
    """A column. ValueError, with the names that there are, for another name."""
    if name not in table:
        raise unknown(f"column of {option},", name, table)
    return table[name]


def with_target(table: Table, target: str) -> Table:
    """Those rows that have a target; a warning if some have none, ValueError if all lack it."""
    absent = missing_values(_column(table, target))
    if absent.all():
        raise ValueError(f"column {target!r}, the --target, has no value in any row")
    if absent.any():
        warnings.warn(f"{absent.sum():,} rows without a value of {target!r}, the --target, are left out", stacklevel=3)
    return {name: values[~absent] for name, values in table.items()}
