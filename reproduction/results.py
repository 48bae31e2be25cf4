"""Results: measurements that a config tells apart, the rows that they make, and the files of JSON lines with these
rows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Protocol, Self

import torch

from altmin import data
from altmin.training.runs import Row as Row
from altmin.training.runs import Tick as Tick
from altmin.training.samples import Samples, fingerprint

RESULTS = Path(__file__).resolve().parent / "results"
"""NAME.jsonl and NAME.png of each figure, and search/NAME.jsonl with the configurations that its searches have
tried."""


@dataclass(frozen=True)
class Setting:
    """The place where measurements are made. environment: versions and hardware, stored with every row."""

    device: torch.device
    data_dir: Path | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    loaded: dict[Any, Samples] = field(default_factory=dict, repr=False, compare=False)
    """The samples of one data set at a time."""

    def samples(self, name: str, part: str, limit: int | None = None) -> Samples:
        """Return the first `limit` samples of a part ("train", "validation", "test"), on the device."""
        if any(known != name for known, _ in self.loaded):
            self.loaded.clear()
        if (name, part) not in self.loaded:
            x, y = data.load(name, part, self.data_dir)
            self.loaded[name, part] = x.to(self.device), y.to(self.device)
        x, y = self.loaded[name, part]
        return x[:limit], y[:limit]

    def about(self, samples: Samples) -> Row:
        """Return what a row says of its training samples."""
        return {"data": fingerprint(samples), "rows": len(samples[0])}


class Measurement(Protocol):
    """One curve of a figure, or a point of one. Those of one panel and name are drawn as one curve. Seeds count from 0.

    A class may also have `measure` (what its curves show), `y_scale`, `words` (for `--only`) and `together` (False if
    its seeds are made one by one on a GPU, too).
    """

    @property
    def panel(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def seeds(self) -> int: ...

    def config(self) -> Row:
        """Return all that its results depend on but the seed, as JSON holds it."""

    def lacking(self, setting: Setting) -> str:
        """Return what is missing to make it here, in words; empty if nothing is."""

    def reduced(self) -> "Measurement":
        """Return one of the same kind for a preview of the figure, which takes seconds."""

    def make(self, seeds: Sequence[int], setting: Setting, tick: Tick) -> list[Row]:
        """Return a row for each seed: "seed", and what was measured."""

    def points(self, row: Row, axis: str) -> list[tuple[float, float]]:
        """Return what a row shows, as (x, y), against one of the figure's axes."""


class Results:
    """Rows with a measurement's config and seed, the environment, the data's fingerprint, and what was measured. `add`
    appends to the file."""

    def __init__(self, rows: Sequence[Row], path: Path | None = None):
        self.rows, self.path = list(rows), path

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file; no rows if it does not exist. ValueError with the number of a line that is damaged."""
        rows: list[Row] = []
        for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
            try:
                rows.append({**(row := json.loads(line)), "config": row["config"]})
            except (ValueError, KeyError, TypeError):
                raise ValueError(
                    f"line {number} of {path} is no result; delete it, and the run is made again"
                ) from None
        return cls(rows, path)

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows, also to the file, to which other processes may have added since it was read."""
        self.rows += rows
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab", buffering=0) as file:  # in one write, which those of other processes do not part
                file.write("".join(json.dumps(row) + "\n" for row in rows).encode())
            self.rows = self.read(self.path).rows

    def of(self, run: Measurement) -> list[Row]:
        """Return the rows of a run, by seed; of a seed that two processes have made, the first."""
        config = run.config()
        made = {row["seed"]: row for row in reversed(self.rows) if row["config"] == config}
        return [made[seed] for seed in sorted(made)]

    def missing(self, run: Measurement) -> list[int]:
        """Return the seeds of a run that have not been made."""
        made = {row["seed"] for row in self.of(run)}
        return [seed for seed in range(run.seeds) if seed not in made]

    def all(self, run: Measurement) -> list[Row]:
        """Return the rows of all its seeds. KeyError if one has not been made."""
        if self.missing(run):
            raise KeyError(run.name)
        return self.of(run)[: run.seeds]

    def values(self, run: Any, *, batch: int | None = None, epoch: int | None = None) -> list[float]:
        """Return the accuracy of every seed after a batch or an epoch (-1 for the last); 0 for one that diverged
        before. KeyError if a seed has not been made."""
        unit, number = ("epoch", run.epochs if epoch == -1 else epoch) if batch is None else ("batch", batch)
        rows = (row["epochs" if batch is None else "batches"] for row in self.all(run))
        return [next((accuracy(point) for point in points if point[unit] == number), 0.0) for points in rows]


def accuracy(point: Row) -> float:
    """Return what a row of a history measured on test or validation samples."""
    return float(next(value for name, value in point.items() if name.endswith("_accuracy")))


def words(values: Sequence[float], form: str = ".3f") -> str:
    """Return the mean and, of several, the standard deviation.

    >>> words([0.5, 0.7])
    '0.600 ± 0.141'
    """
    return f"{mean(values):{form}}" + (f" ± {stdev(values):{form}}" if len(values) > 1 else "")


def deviation(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0
