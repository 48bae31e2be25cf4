"""`Learner`: a run that is measured after some of its batches, with the seconds of training up to there."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from altmin import Recorded, methods
from altmin.common import precision
from altmin.common.errors import Diverged
from altmin.core.labels import by_label
from altmin.training import Progress, accuracy, fit, mean_loss
from altmin.training.samples import Samples
from reproduction import opponents  # noqa: F401  (it registers methods)
from reproduction.learning.problems import Problem, problem
from reproduction.results import Row, Setting, Tick
from reproduction.run import Run

TRAIN_ROWS = 10_000
"""Number of training samples that a training loss is measured on."""
WORST = -1e9
"""The score of a run that diverged, where scores are negative losses; where they are accuracies it is 0."""
Measure = Callable[[nn.Module], Row]


@dataclass(frozen=True, kw_only=True)
class Learner(Run):
    """A run of a task. It trains one seed at a time, so that seconds are its own.

    figure, task: their names. marks: the batches after which it is measured; at its end it always is. parts: what a run
    on test data is measured on, of "train" (the first samples), "validation" and "test". shown: which of these is
    drawn. at_end: whether only the end is drawn, as where other lengths are runs of their own. by_marks: whether its
    rate is chosen by the mean over all marks instead of the end. refit: whether the run on test data trains on training
    and validation samples together. chosen: whether its options are known yet. timed: "cuda" or "cpu" if its results
    there were made with nothing else running, so that their seconds are shown.
    """

    task: str
    figure: str = "learning"
    marks: tuple[int, ...] = ()
    parts: tuple[str, ...] = ("validation", "test")
    shown: str = "test"
    at_end: bool = False
    by_marks: bool = False
    refit: bool = False
    chosen: bool = True
    timed: str = ""
    together: ClassVar[bool] = False

    def config(self) -> dict[str, Any]:
        own = {"task": self.task, "marks": list(self.marks), "refit": self.refit, "precision": self.precision}
        return {"measured": "learning", **super().config(), **own}

    @property
    def words(self) -> tuple[str, ...]:
        """Words by which `--only` selects it: task, method, and its name, also in small letters without other signs."""
        return self.task, self.method, self.name, self.slug

    @property
    def slug(self) -> str:
        return re.sub("[^a-z0-9]+", "-", self.name.lower())

    @property
    def problem(self) -> Problem:
        return problem(self.data)

    @property
    def measure(self) -> str:
        """The measure that its curve shows."""
        return f"{'training' if self.shown == 'train' else self.shown} {self.problem.metric}"

    @property
    def lower_is_better(self) -> bool:
        return self.problem.metric == "loss"

    @property
    def y_scale(self) -> str:
        """The scale on which halving an error has the same height everywhere."""
        return "log" if self.lower_is_better else "logit"

    def lacking(self, setting: Setting) -> str:
        if self.method not in methods.names():
            return f"there is no method {self.method!r}"
        if not self.chosen:
            command = f"python -m reproduction search {self.figure} --only {self.task}/{self.slug}"
            return f"its rate has not been chosen yet; `{command}` does it"
        return super().lacking(setting)

    def reduced(self, most: int = 2_000) -> "Learner":
        """Return it with one seed, two epochs at most, the first `most` samples, and options from before a search."""
        small = super().reduced(most)
        assert isinstance(small, Learner)
        return replace(small, chosen=True, warmup=0)

    def make_all(self, jobs: Sequence[tuple[Mapping[str, Any], int]], setting: Setting, tick: Tick) -> list[Row]:
        """Return a row for each job, with "points": after each mark the batch, seconds and what was measured; and if it
        diverged, those so far and the reason as "diverged"."""
        return [self.row(options, seed, setting, tick) for options, seed in jobs]

    def row(self, options: Mapping[str, Any], seed: int, setting: Setting, tick: Tick) -> Row:
        train, measure = self.parts_of(seed, setting)
        row = {"seed": seed, **setting.about(train)}
        x, y = (part[: self.batch_size] for part in train)
        points = Points(self.marks, measure, tick)
        settings = {name: getattr(self, name) for name in ("epochs", "batch_size", "schedule", "warmup", "augment")}
        with precision.using(self.precision if setting.device.type == "cuda" else "float32"):
            build = partial(self.build, options, seed, setting.device)
            method = ready(build, x, y, fuse=bool(self.timed) and self.part == "test")
            try:
                fit(method, train, seed=seed, callbacks=[points], **settings)
            except Diverged as error:
                row["diverged"] = str(error)
        return {**row, "recorded": isinstance(method, Recorded), "points": points.rows}

    def parts_of(self, seed: int, setting: Setting) -> tuple[Samples, Measure]:
        """Return what is trained on, and what measures a model on the other parts."""

        def load(part: str) -> Samples:
            return self.problem.load(setting, part, self.limit, seed)

        train, final = load("train"), self.part == "test"
        parts = {part: load(part) for part in (self.parts if final else ("validation",)) if part != "train"}
        if final and "train" in self.parts:
            parts["train"] = (train[0][:TRAIN_ROWS], train[1][:TRAIN_ROWS])
        if final and self.refit:
            x, y = (torch.cat(both) for both in zip(train, load("validation"), strict=True))
            train = (x, y)
        loss, metric = self.problem.loss or nn.CrossEntropyLoss(), self.problem.metric

        def measure(model: nn.Module) -> Row:
            value = accuracy if metric == "accuracy" else partial(mean_loss, loss=by_label(loss))
            return {f"{name}_{metric}": value(model, part) for name, part in parts.items()}

        return train, measure

    def build(self, options: Mapping[str, Any], seed: int, device: torch.device) -> Any:
        """Return the method on a net whose first weights depend on the seed alone; on a GPU with fused kernels where it
        has them."""
        torch.manual_seed(seed)
        model, given = self.problem.build(self.model).to(device), dict(options)
        if self.problem.loss is not None:
            given["loss"] = self.problem.loss
        if "fused" in methods.options(self.method) and device.type == "cuda":
            given["fused"] = True
        return methods.create(self.method, model, **given)

    def points(self, row: Row, axis: str) -> list[tuple[float, float]]:
        """Return what is shown against "samples", "batches" or "seconds" of training."""
        found = row["points"] if axis != "seconds" or self.has_seconds(row) else []
        if self.at_end:
            found = [] if "diverged" in row else found[-1:]
        times = {"samples": self.batch_size, "batches": 1, "seconds": 1}[axis]
        name = "seconds" if axis == "seconds" else "batch"
        return [(times * point[name], point[f"{self.shown}_{self.problem.metric}"]) for point in found]

    def has_seconds(self, row: Row) -> bool:
        """Return whether the seconds of a row are shown: those of one machine, on which nothing else ran."""
        return self.timed == ("cuda" if row["environment"]["gpu"] else "cpu")

    def score(self, row: Row, at_batch: int | None = None) -> float:
        """Return what a rate is chosen by: the validation accuracy, or the validation loss with a minus sign."""
        if "diverged" in row:
            return WORST if self.lower_is_better else 0.0
        values = [point[f"validation_{self.problem.metric}"] for point in row["points"]]
        value = fmean(values if self.by_marks else values[-1:])
        return -value if self.lower_is_better else value


@dataclass
class Points:
    """A callback that measures after some batches and at the end, and counts the seconds between."""

    marks: Sequence[int]
    measure: Measure
    tick: Tick
    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0
    clock: float = 0.0

    def on_start(self, progress: Progress) -> None:
        self._wait(progress)
        self.clock = time.perf_counter()

    def on_batch_end(self, progress: Progress) -> None:
        self.tick(progress.batch, progress.batches or progress.batch, f"loss {progress.train_loss:.4f}")
        if progress.batch not in self.marks and progress.batch != progress.batches:
            return
        self._wait(progress)
        self.seconds += time.perf_counter() - self.clock
        self.rows.append({"batch": progress.batch, "seconds": self.seconds, **self.measure(progress.model)})
        self.clock = time.perf_counter()

    @staticmethod
    def _wait(progress: Progress) -> None:
        if next(progress.model.parameters()).is_cuda:
            torch.cuda.synchronize()


def ready(build: Callable[[], Any], x: Tensor, y: Tensor, fuse: bool = False) -> Any:
    """Return a method that has not taken a step, on a GPU with recorded steps where they can be. Libraries have loaded
    their kernels for this batch, since another method of the same kind has taken some steps. fuse: as in `Recorded`."""
    warm = build()
    for _ in range(3):
        warm.step(x, y)
    del warm
    method = build()
    if x.is_cuda:
        try:
            recorded = Recorded(method, fuse=fuse)
            recorded.record(x, y)
            return recorded
        except ValueError:  # it cannot be recorded
            return build()
    return method
