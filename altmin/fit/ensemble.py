"""`fit_ensemble`: one run for all members of an ensemble, each with its own order of the data and its own rows."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from altmin.errors import Diverged
from altmin.execution.ensemble import Ensemble
from altmin.execution.graph import Recorded
from altmin.fit.run import History, check
from altmin.fit.samples import Samples, accuracy, device_of, epoch_order
from altmin.fit.schedule import Schedule


@dataclass
class MemberHistory(History):
    """A member's rows; if it has diverged, those before, and what `fit` would have said."""

    diverged: str | None = None


@dataclass(frozen=True)
class EnsembleProgress:
    """What `report` gets after each batch: which of how many, every member's mean loss in this epoch and its rows."""

    batch: int
    batches: int
    train_losses: list[float]
    histories: list[MemberHistory]

    @property
    def train_loss(self) -> float:
        """The mean over the members that take part."""
        return fmean([loss for loss in self.train_losses if loss == loss] or [float("nan")])


def fit_ensemble(
    ensemble: Ensemble | Recorded,
    train: Samples,
    test: Samples | None = None,
    *,
    epochs: int,
    batch_size: int,
    seeds: Sequence[int] | None = None,
    eval_batches: Sequence[int] = (),
    schedule: str = "constant",
    measure: str = "test_accuracy",
    report: Callable[[EnsembleProgress], None] | None = None,
) -> list[MemberHistory]:
    """What `fit` does, for every member at once: one history for each, with the rows that `fit` would have given.

    `seeds` are the members' own and give the order in which each sees the data, as in `fit`; 0, 1, 2, ... if not given.
    A member's `seconds` are its share: those of the ensemble over the number of members. Members that diverge stop
    there and do not hinder the others; if all do, the run ends.
    """
    members = len(ensemble)
    seeds = range(members) if seeds is None else list(seeds)
    if len(seeds) != members:
        raise ValueError(f"there are {members} members but {len(seeds)} seeds; give one for each")
    per_epoch, evaluated = check(ensemble.member(0), train, test, epochs, batch_size, eval_batches)
    plan = Schedule(schedule, ensemble.optimizer, epochs, epochs * per_epoch)
    run = _Run(ensemble, train, test, batch_size, list(seeds), frozenset(evaluated), plan, measure, per_epoch)
    try:
        for epoch in range(epochs):
            for _ in run.epoch(epoch):
                if report:
                    report(EnsembleProgress(run.number, epochs * per_epoch, run.means(), run.histories))
    except Diverged:  # every member has
        run.read()
    finally:
        plan.set(0)
    return run.histories


@dataclass
class _Run:
    """The parts of a run and where it is."""

    ensemble: Any
    train: Samples
    test: Samples | None
    batch_size: int
    seeds: list[int]
    eval_batches: frozenset[int]
    schedule: Schedule
    measure: str
    per_epoch: int
    number: int = 0
    seconds: float = 0.0
    clock: float = 0.0
    unread: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.histories = [MemberHistory() for _ in self.seeds]
        self.before = self.ensemble.steps
        self.losses, self.counts = [0.0] * len(self.seeds), [0] * len(self.seeds)
        self.device = device_of(self.ensemble.member(0))
        self.read()

    def means(self) -> list[float]:
        return [loss / count if count else float("nan") for loss, count in zip(self.losses, self.counts, strict=True)]

    def epoch(self, epoch: int) -> Iterator[None]:
        """One pass over the data; yields after each batch."""
        self.losses, self.counts = [0.0] * len(self.seeds), [0] * len(self.seeds)
        self.seconds, self.clock = 0.0, time.perf_counter()
        x, y = self.train
        each = len(set(self.seeds)) > 1
        seeds = self.seeds if each else self.seeds[:1]
        order = torch.stack([epoch_order(len(x), seed, epoch) for seed in seeds]).to(x.device)
        for rows in order.split(self.batch_size, 1)[: self.per_epoch]:
            rows = rows if each else rows[0]
            metrics = self.ensemble.step(x[rows].to(self.device), y[rows].to(self.device), each=each)
            self.unread.append(metrics.loss.to(torch.float64, copy=True))
            self.number += 1
            self.schedule.after_batch(self.number)
            if self.device.type == "cpu" or len(self.unread) >= 50:  # reading makes the host wait for a GPU
                self.read()
            if self.number in self.eval_batches:
                with self._off_the_clock():
                    for i in self._taking_part():
                        self.histories[i].batches.append({"batch": self.number, **self._accuracy(i)})
            yield
        self.ensemble.end_epoch()
        self.schedule.after_epoch(epoch + 1)
        with self._off_the_clock():
            for i in self._taking_part():
                row = {"epoch": epoch + 1, "train_loss": self.losses[i] / self.per_epoch, **self._accuracy(i)}
                self.histories[i].epochs.append({**row, "seconds": self.seconds / len(self.seeds)})

    def read(self) -> None:
        """Adds up the losses that have gathered, one by one, and notes who has diverged."""
        for values in torch.stack(self.unread).tolist() if self.unread else []:
            for i, value in enumerate(values):
                if value == value:  # not a number: the member takes no part any more
                    self.losses[i] += value
                    self.counts[i] += 1
        self.unread.clear()
        for i, step in self.ensemble.diverged.items():
            if self.histories[i].diverged is None:
                epoch, batch = divmod(step - self.before - 1, self.per_epoch)
                place = f"epoch {epoch + 1}, batch {batch + 1} of {self.per_epoch}" if epoch >= 0 else "an earlier run"
                self.histories[i].diverged = str(Diverged(f"the loss or a weight in {place}"))

    def _taking_part(self) -> list[int]:
        self.read()
        return [i for i, history in enumerate(self.histories) if history.diverged is None]

    def _accuracy(self, i: int) -> dict[str, float]:
        return {} if self.test is None else {self.measure: accuracy(self.ensemble.member(i), self.test)}

    @contextmanager
    def _off_the_clock(self) -> Iterator[None]:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.seconds += time.perf_counter() - self.clock
        yield
        self.clock = time.perf_counter()
