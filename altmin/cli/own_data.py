"""What commands do with the data they are given: a data set by its name, or a table of one's own from a file."""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from altmin import data, methods
from altmin.cli.options import Runs, words
from altmin.data.base import Dataset
from altmin.data.tables import Choices, TableData
from altmin.data.targets import Quantity, Target
from altmin.training.evaluate import rmse
from altmin.training.samples import Samples

Data = Dataset | TableData
TABLE_EPOCHS, TABLE_BATCH = 50, 64
"""Of a table of one's own, if they are not given: it has fewer rows than the data sets."""
Given = TypeVar("Given", bound=Runs)


def known_data(given: Any) -> Data:
    """The data set that a command names, or the table of one's own. ValueError for options that are for the other."""
    if given.data in data.names() or not (Path(given.data).suffix or given.target):
        for option in ("target", "drop"):
            if getattr(given, option) is not None:
                raise ValueError(f"--{option} is for a table of your own, given --data {given.data}; leave it out")
        return data.dataset(given.data)
    if not 0 < given.test_part < 1:
        raise ValueError(f"--test-part lies between 0 and 1, given {given.test_part:g}")
    drop = words(given.drop or "")
    choices = Choices(given.target, given.task, drop, given.test_part, given.split_seed)
    return TableData.read(given.data, choices, given.validation)


def settled(given: Given, known: Data, epochs: int) -> Given:
    """The options, with the numbers of epochs and samples in a batch that are not given. epochs: of a data set."""
    usual = (TABLE_EPOCHS, TABLE_BATCH) if isinstance(known, TableData) else (epochs, 200)
    return replace(given, epochs=given.epochs or usual[0], batch_size=given.batch_size or usual[1])


def part_of(known: Data, part: str, data_dir: Path | None) -> Samples:
    """The samples of a part, and their labels or targets."""
    return known.load(part) if isinstance(known, TableData) else data.load(known.name, part, data_dir)


def target_of(known: Data) -> Target | None:
    """What a table is to predict; None for a data set, which has labels."""
    return known.encoding.target if isinstance(known, TableData) else None


def metrics(target: Target | None) -> dict[str, Any] | None:
    """What is measured of numbers: R^2, and the root of the mean squared error in their unit. Of labels None, which is
    for their accuracy."""
    if not isinstance(target, Quantity):
        return None
    return {"r2": "r2", "rmse": lambda output, y: rmse(output, y) * target.std}


def measure(known: Data) -> str:
    """The first of them."""
    return "r2" if isinstance(target_of(known), Quantity) else "accuracy"


def for_target(method: str, options: Mapping[str, Any], known: Data) -> dict[str, Any]:
    """The options of a method, with the squared error as its loss if the target is a number. ValueError for a method
    whose loss cannot be chosen."""
    if not isinstance(target_of(known), Quantity):
        return dict(options)
    loss = inspect.signature(methods.factory(method)).parameters.get("loss")
    if loss is None or loss.default not in (None, inspect.Parameter.empty):
        raise ValueError(f"method {method!r} trains classifiers alone; use am-adam or another for a regression")
    return {**options, "loss": nn.MSELoss()}


def about(known: Data) -> dict[str, Any]:
    """What a result says of a table of one's own."""
    if not isinstance(known, TableData):
        return {}
    target = known.encoding.target
    rows = {name: len(part) for name, part in known.parts.items()}
    kind = (
        {"task": "regression"} if isinstance(target, Quantity) else {"task": "classification", "classes": target.names}
    )
    return {"table": {"target": known.encoding.target_name, **kind, "inputs": known.sample_shape, "rows": rows}}


def headline(known: Data) -> list[str]:
    """A line about a table of one's own, for people."""
    if not isinstance(known, TableData):
        return []
    target, name = known.encoding.target, known.encoding.target_name
    task = f"regression of {name}" if isinstance(target, Quantity) else f"{len(target.names)} classes of {name}"
    rows = ", ".join(f"{part} rows {len(rows):,}" for part, rows in known.parts.items())
    return [f"{known.name}: {task}, inputs {'x'.join(map(str, known.sample_shape))}, {rows}"]
