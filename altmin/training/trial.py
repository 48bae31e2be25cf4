"""Runs of methods by their names on a model and data by theirs: what the command line and the figures train."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from altmin import data, methods, models
from altmin.common.describe import plain
from altmin.common.errors import Diverged
from altmin.runners import Recorded
from altmin.runners.capture import can_capture
from altmin.runners.ensemble import Ensemble
from altmin.training.callbacks import EachBatch
from altmin.training.ensemble import fit_ensemble
from altmin.training.loop import History
from altmin.training.run import Progress, fit
from altmin.training.samples import Samples, batches_per_epoch

Row = dict[str, Any]
Options = Mapping[str, Any]
Tick = Callable[[int, int, str], None]
"""Shows how many of how many batches are done, and what is under way."""


class Job(NamedTuple):
    """What tells one run of a trial from the others; `options` are all of the method's."""

    method: str
    options: Options
    seed: int


class Checkpoint(NamedTuple):
    """Where a run is kept, after how many batches besides the ends of epochs, and whether to go on from there."""

    path: Path | None = None
    every: int | None = None
    resume: bool = False


NO_CHECKPOINT = Checkpoint()


@dataclass(frozen=True)
class Trial:
    """What several runs have in common. evaluated_on: "test" or "validation", the part of the data that `test` is.
    record: whether steps are recorded; None for those of ensembles that can be, whose kernels then are not compiled.
    wrap: what a method becomes that is not recorded, such as `Distributed`."""

    data: str
    train: Samples
    test: Samples
    evaluated_on: str
    model: str
    epochs: int
    batch_size: int
    schedule: str
    freeze_first: bool
    precision: str
    device: torch.device
    record: bool | None = False
    eval_batches: Sequence[int] = ()
    augment: str | None = None
    warmup: int = 0
    wrap: Callable[[methods.Method], methods.Method] = lambda method: method

    def config(self) -> dict[str, Any]:
        """The settings as a result holds them."""
        names = ("epochs", "batch_size", "schedule", "freeze_first", "precision", "evaluated_on", "eval_batches")
        given = {name: getattr(self, name) for name in ("augment", "warmup") if getattr(self, name)}
        config = {**{name: getattr(self, name) for name in names}, "train_samples": len(self.train[0])}
        return {**config, **given}

    def build(self, job: Job, record: bool) -> methods.Method:
        """A method on a model whose first weights, and dropout later on, depend on the seed alone."""
        known = data.dataset(self.data)
        torch.manual_seed(job.seed)
        model = models.create(self.model, known.sample_shape, known.classes, known.tokens).to(self.device)
        if self.freeze_first:
            models.freeze_first(model)
        method = methods.create(job.method, model, **job.options)
        return Recorded(method) if record else self.wrap(method)

    def check(self, jobs: Sequence[Job]) -> int:
        """The number of batches in an epoch. Builds the method of every job, and raises what it has against this model:
        that is better known before the first run than after it."""
        for job in jobs:
            model = self.build(job, bool(self.record)).model
        return batches_per_epoch(model, len(self.train[0]), self.batch_size)

    def run(
        self,
        job: Job,
        report: Callable[[Progress], None],
        checkpoint: Checkpoint = NO_CHECKPOINT,
        finished: Callable[[nn.Module], None] = lambda model: None,
    ) -> Row:
        """One run as a row of a result. finished: gets the trained model. Raises Diverged."""
        method = self.build(job, bool(self.record))
        same = {name: getattr(self, name) for name in ("data", "model", "freeze_first", "precision")}
        history = fit(
            method,
            seed=job.seed,
            checkpoint=checkpoint.path,
            checkpoint_every=checkpoint.every,
            resume=checkpoint.resume,
            config={**same, "method": job.method, **plain(job.options)},
            callbacks=[EachBatch(report)],
            **self._fit(),
        )
        finished(method.model)
        return {"seed": job.seed, **asdict(history)}

    def attempt(self, job: Job, report: Callable[[Progress], None]) -> Row:
        """As `run`; if it diverges, the row has what it came to and, as `diverged`, why it stopped."""
        reached = History()

        def note(at: Progress) -> None:
            nonlocal reached
            reached = at.history
            report(at)

        try:
            return self.run(job, note)
        except Diverged as error:
            return {"seed": job.seed, **asdict(reached), "diverged": str(error)}

    def in_turn(self, jobs: Sequence[Job], tick: Tick) -> list[Row]:
        """A row for each run, one run after the other."""

        def report(i: int) -> Callable[[Progress], None]:
            text = f"{jobs[i].method}, seed {jobs[i].seed}"
            return lambda at: tick(i * (at.batches or 0) + at.batch, len(jobs) * (at.batches or 0), text)

        return [self.attempt(job, report(i)) for i, job in enumerate(jobs)]

    def run_seeds(self, jobs: Sequence[Job], tick: Tick) -> list[Row]:
        """A row for each run of one method: as an ensemble where that is faster and can be, else in turn."""
        ensemble = self.ensemble(jobs) if self.together else None
        if ensemble is None:
            return self.in_turn(jobs, tick)
        seeds = [job.seed for job in jobs]
        histories = fit_ensemble(ensemble, seeds=seeds, callbacks=[EachBatch(with_loss(tick))], **self._fit())
        rows = [{"seed": seed, **asdict(history)} for seed, history in zip(seeds, histories, strict=True)]
        return [{key: value for key, value in row.items() if value is not None} for row in rows]

    @property
    def together(self) -> bool:
        """Whether seeds train faster together: one run leaves most of a GPU idle, but keeps a CPU busy."""
        return self.device.type == "cuda"

    def ensemble(self, jobs: Sequence[Job]) -> Any:
        """A member for each run; None if they cannot be trained together."""
        members = [self.build(job, record=False) for job in jobs]
        try:
            ensemble = Ensemble(members)
        except ValueError:
            return None
        if self.record is None:
            possible = self.device.type == "cuda" and can_capture(ensemble)
            return Recorded(ensemble, fuse=False) if possible else ensemble
        return Recorded(ensemble) if self.record else ensemble

    def _fit(self) -> dict[str, Any]:
        """What `fit` and `fit_ensemble` are told alike."""
        names = ("train", "epochs", "batch_size", "schedule", "warmup", "eval_batches", "augment")
        return {**{name: getattr(self, name) for name in names}, "test": {self.evaluated_on: self.test}}


def described(options: Options) -> dict[str, Any]:
    """The options of a method as a result holds them: the learning rate, and the others."""
    others = plain(options)
    return {"lr": others.pop("lr", None), "options": others}


def with_loss(tick: Tick) -> Callable[[Any], None]:
    """Shows how far a run, or an ensemble's, has come, and its loss."""
    return lambda at: tick(at.batch, at.batches, f"loss {at.train_loss:.4f}")
