"""`Run`: a training run, the measurement that most figures are made of."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from typing import Any

from altmin import data
from altmin.common.describe import plain
from altmin.paper.reproduce.measurement import Row, Setting, Tick
from altmin.runners import precision
from altmin.training.trial import Job, Trial

QUICK_ROWS = 10_000
OF_THE_PICTURE = ("seeds", "label", "title", "at")
LATER = ("augment", "warmup")
"""Settings that came later: a config has them only where they are given, so that older results still belong to runs."""


@dataclass(frozen=True)
class Run:
    """A method on a model and data, evaluated on `part` of them. limit: the first so many training samples only.
    whole: not to be made from a file with a part of the data. label: the curve's name in the picture; the method's if
    there is none. title: its panel's, by default data and model. at: where the run stands on an axis that is not one of
    training (its depth, say)."""

    method: str
    model: str
    data: str = "mnist"
    options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 1
    batch_size: int = 200
    schedule: str = "constant"
    seeds: int = 5
    eval_batches: tuple[int, ...] = ()
    freeze_first: bool = False
    limit: int | None = None
    part: str = "test"
    whole: bool = False
    label: str = ""
    title: str = ""
    at: float | None = None
    augment: str | None = None
    warmup: int = 0

    @property
    def name(self) -> str:
        return self.label or self.method

    @property
    def panel(self) -> str:
        return self.title or f"{self.data}, {self.model}"

    def config(self) -> dict[str, Any]:
        settings = asdict(self) | {"options": dict(self.options), "eval_batches": list(self.eval_batches)}
        kept = {name: plain(value) for name, value in settings.items() if name not in OF_THE_PICTURE}
        return {name: value for name, value in kept.items() if value or name not in LATER}

    def lacking(self, setting: Setting) -> str:
        """The rest of the data, if `whole` and the file has only a part."""
        if not self.whole or data.describe(self.data, setting.data_dir).state != "partial":
            return ""
        return f"the file of {self.data} is a partial one"

    def reduced(self, most: int = QUICK_ROWS) -> "Run":
        """One seed, two epochs at most, the first `most` samples."""
        limit = min(self.limit or most, most)
        epochs, batches = min(self.epochs, 2), -(-limit // self.batch_size)
        seen = tuple(n for n in self.eval_batches if n <= epochs * batches)
        return replace(self, seeds=1, epochs=epochs, limit=limit, eval_batches=seen, whole=False)

    def make(self, seeds: Sequence[int], setting: Setting, tick: Tick) -> list[Row]:
        """The seeds as an ensemble where that is faster and can be. Each row has "batches" and "epochs", as
        `altmin train` writes them."""
        return self.make_all([(self.options, seed) for seed in seeds], setting, tick)

    def make_all(self, jobs: Sequence[tuple[Mapping[str, Any], int]], setting: Setting, tick: Tick) -> list[Row]:
        """As `make`, for options and seeds in their place."""
        trial = self.trial(setting)
        with precision.using("float32"):
            rows = trial.run_seeds([Job(self.method, dict(options), seed) for options, seed in jobs], tick)
        return [{**setting.about(trial.train), **row} for row in rows]

    def trial(self, setting: Setting, record: bool | None = None) -> Trial:
        """What its seeds have in common. record: whether steps are recorded; None for wherever they can be."""
        train = setting.samples(self.data, "train", self.limit)
        test = setting.samples(self.data, self.part)
        return Trial(
            *(self.data, train, test, self.part, self.model, self.epochs, self.batch_size, self.schedule),
            *(self.freeze_first, "float32", setting.device),
            record=record,
            eval_batches=self.eval_batches,
            augment=self.augment,
            warmup=self.warmup,
        )

    def points(self, row: Row, axis: str) -> list[tuple[float, float]]:
        """The accuracy against "batches", "epochs" or "seconds" of training; against any other axis that at the end, at
        `at`."""
        per_epoch = -(-row["rows"] // self.batch_size)
        last = [(self.at, accuracy(row["epochs"][-1]))] if row["epochs"] and self.at is not None else []
        if axis not in ("batches", "epochs", "seconds"):
            return last
        ends = row["epochs"]
        if axis == "seconds":
            seconds = accumulate(point["seconds"] for point in ends)
            return [(at, accuracy(point)) for at, point in zip(seconds, ends, strict=True)]
        found = {point["batch"]: accuracy(point) for point in row["batches"]}
        found |= {point["epoch"] * per_epoch: accuracy(point) for point in ends}
        return [(n if axis == "batches" else n / per_epoch, value) for n, value in sorted(found.items())]


def accuracy(point: Row) -> float:
    """What a row of a history measured on test or validation samples."""
    return float(next(value for name, value in point.items() if name.endswith("_accuracy")))
