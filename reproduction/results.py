"""Results of runs: JSON lines, one a run and seed, to which runs are added as they are made."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import ClassVar, Self

from reproduction.measurement import Measurement, Row
from reproduction.run import Run, accuracy


class Results:
    """Rows with a run's config and seed, the environment, the data's fingerprint, and what was measured."""

    keys: ClassVar[tuple[str, ...]] = ("config", "seed")
    """What every row has."""

    def __init__(self, rows: Sequence[Row], path: Path | None = None):
        self.rows, self.path = list(rows), path

    @classmethod
    def read(cls, path: Path) -> Self:
        """Those of a file; none if it is not there. ValueError if a line is not one of a result."""
        if not path.exists():
            return cls([], path)
        rows = []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            try:
                row = json.loads(line)
                rows.append({**row, **{key: row[key] for key in cls.keys}})
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"line {number} of {path} is no result; delete it, and the run is made again"
                ) from error
        return cls(rows, path)

    def add(self, rows: Sequence[Row]) -> None:
        """Adds rows, to the file too, which is whole at any time. What other processes have added to it since is read
        from it."""
        self.rows += rows
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab", buffering=0) as file:  # in one write, which those of other processes do not part
                file.write("".join(json.dumps(row) + "\n" for row in rows).encode())
            self.rows = self.read(self.path).rows

    def of(self, run: Measurement) -> list[Row]:
        """The rows of a run, by seed; of a seed that two processes have made, the first."""
        config = run.config()
        made = {row["seed"]: row for row in reversed(self.rows) if row["config"] == config}
        return sorted(made.values(), key=lambda row: int(row["seed"]))

    def missing(self, run: Measurement) -> list[int]:
        """The seeds of a run that have not been made."""
        made = {row["seed"] for row in self.of(run)}
        return [seed for seed in range(run.seeds) if seed not in made]

    def all(self, run: Measurement) -> list[Row]:
        """The rows of all its seeds. KeyError if one has not been made."""
        if self.missing(run):
            raise KeyError(run.name)
        return self.of(run)[: run.seeds]

    def values(self, run: Run, *, batch: int | None = None, epoch: int | None = None) -> list[float]:
        """The accuracy after a batch or an epoch, -1 for the last, of every seed. KeyError if a seed has not been made;
        one that diverged before counts as 0."""
        rows = self.all(run)
        if epoch == -1:
            epoch = run.epochs
        unit, number = ("batch", batch) if batch is not None else ("epoch", epoch)
        return [_at(row["batches" if unit == "batch" else "epochs"], unit, number) for row in rows]


def _at(points: Sequence[Row], unit: str, number: int | None) -> float:
    return next((accuracy(point) for point in points if point[unit] == number), 0.0)


def words(values: Sequence[float], form: str = ".3f") -> str:
    """Mean and, of several, the standard deviation.

    >>> words([0.5, 0.7])
    '0.600 ± 0.141'
    """
    return f"{mean(values):{form}}" + (f" ± {stdev(values):{form}}" if len(values) > 1 else "")


def deviation(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0
