"""`Run`: a training run, the measurement that most figures are made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from altmin import data
from altmin.common.describe import plain
from altmin.training.config import RunConfig
from altmin.training.runs import train_runs
from altmin.training.samples import Samples
from reproduction.results import Row, Setting, Tick, accuracy

QUICK_ROWS = 10_000
CONFIG = (
    *("method", "model", "data", "options", "epochs", "batch_size"),
    *("schedule", "eval_batches", "freeze_first", "limit", "part", "whole"),
)
"""The settings by which results belong to a run."""
LATER = ("augment", "warmup")
"""Those that a config has only where they are given, since older results lack them."""


@dataclass(frozen=True)
class Run(RunConfig):
    """A method on a model and data, evaluated on `part` of them. whole: not to be made from a file with a part of the
    data. seeds: their number, from 0. label: the curve's name in the picture, by default the method's. title: its
    panel's, by default data and model. at: its place on an axis that is not one of training (its depth, say)."""

    data: str = "mnist"
    batch_size: int = 200
    schedule: str = "constant"
    precision: str = "float32"
    eval_batches: tuple[int, ...] = ()
    seeds: int = 5
    whole: bool = False
    label: str = ""
    title: str = ""
    at: float | None = None

    @property
    def name(self) -> str:
        return self.label or self.method

    @property
    def panel(self) -> str:
        return self.title or f"{self.data}, {self.model}"

    def config(self) -> Row:
        given = {name: plain(getattr(self, name)) for name in (*CONFIG, *LATER)}
        return {name: value for name, value in given.items() if value or name not in LATER}

    def lacking(self, setting: Setting) -> str:
        if not self.whole or data.describe(self.data, setting.data_dir).state != "partial":
            return ""
        return f"the file of {self.data} is a partial one"

    def reduced(self, most: int = QUICK_ROWS) -> "Run":
        """Return it with one seed, two epochs at most, the first `most` samples."""
        limit = min(self.limit or most, most)
        epochs, batches = min(self.epochs, 2), -(-limit // self.batch_size)
        seen = tuple(n for n in self.eval_batches if n <= epochs * batches)
        return replace(self, seeds=1, epochs=epochs, limit=limit, eval_batches=seen, whole=False)

    def make(self, seeds: Sequence[int], setting: Setting, tick: Tick) -> list[Row]:
        """Return rows with "batches" and "epochs", as `altmin train` writes them, and "diverged" if it did; on a GPU
        the seeds train as an ensemble if they can."""
        return self.make_all([(self.options, seed) for seed in seeds], setting, tick)

    def make_all(self, jobs: Sequence[tuple[Mapping[str, Any], int]], setting: Setting, tick: Tick) -> list[Row]:
        """Do as `make`, for options and seeds in their place."""
        train, test = self.samples(setting)
        runs = [replace(self, device=setting.device, options=dict(options), seed=seed) for options, seed in jobs]
        return [{**setting.about(train), **row} for row in train_runs(runs, train, test, tick)]

    def samples(self, setting: Setting) -> tuple[Samples, Samples]:
        """Return the samples to learn from and to measure on."""
        return setting.samples(self.data, "train", self.limit), setting.samples(self.data, self.part)

    def points(self, row: Row, axis: str) -> list[tuple[float, float]]:
        """Return the accuracy against "batches", "epochs" or "seconds" of training; against any other axis that at the
        end, at `at`."""
        ends, per_epoch = row["epochs"], -(-row["rows"] // self.batch_size)
        if axis not in ("batches", "epochs", "seconds"):
            return [(self.at, accuracy(ends[-1]))] if ends and self.at is not None else []
        if axis == "seconds":
            seconds = accumulate(point["seconds"] for point in ends)
            return [(at, accuracy(point)) for at, point in zip(seconds, ends, strict=True)]
        found = {point["batch"]: accuracy(point) for point in row["batches"]}
        found |= {point["epoch"] * per_epoch: accuracy(point) for point in ends}
        return [(n if axis == "batches" else n / per_epoch, value) for n, value in sorted(found.items())]

    def score(self, row: Row, at_batch: int | None = None) -> float:
        """Return what a search goes by, the more the better: the accuracy after a batch, or at the end; 0 if the run
        has diverged."""
        if "diverged" in row:
            return 0.0
        points = row["epochs"][-1:] if at_batch is None else [p for p in row["batches"] if p["batch"] == at_batch]
        return accuracy(points[0])
