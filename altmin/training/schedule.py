"""Learning rates in a run: factors on them as functions of the part of the run that is over, or one of
torch's schedulers."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from altmin.common.describe import describe
from altmin.common.errors import unknown
from altmin.training.callbacks import column_of
from altmin.training.config import RunConfig


def half_wave(start: float, end: float, t: float) -> float:
    """Return the value at t of half a wave of a cosine from start, at t = 0, to end, at t = 1."""
    return end + (start - end) * (1 + math.cos(math.pi * t)) / 2


def one_cycle(t: float) -> float:
    """Return a factor that goes from 1/25 to 1 in the first 0.3 of a run and down to 1/250,000 in the rest.

    The numbers are those of torch's OneCycleLR. Smith and Topin, 2018, "Super-Convergence".
    """
    return half_wave(1 / 25, 1.0, t / 0.3) if t < 0.3 else half_wave(1.0, 1 / 250_000, (t - 0.3) / 0.7)


SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda t: 1.0,
    "decay": lambda t: min(1.0, (1 - t) / 0.4),
    "linear": lambda t: 1 - t,
    "cosine": lambda t: half_wave(1.0, 0.0, t),
    "step": lambda t: 0.1 ** ((t >= 0.5) + (t >= 0.75)),
    "one-cycle": one_cycle,
}


class Rates:
    """Scheduler of a run's learning rates. description: text that distinguishes it from others."""

    description: str

    def move(self, batches: int, epochs: int) -> None:
        """Set the rates after these numbers of batches and epochs of the run."""

    def after_epoch(self, row: Mapping[str, Any]) -> None:
        """Step by what an epoch's row has."""

    def end(self) -> None:
        """Give the optimizer its own rates again."""

    def state_dict(self) -> dict[str, Any]:
        """Return what does not follow from the position in the run."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load such a state."""


class Schedule(Rates):
    """Sets an optimizer's rates, of an ensemble's one for each member, to their own times a factor: after each batch,
    or for a name with "/epoch" after each epoch. per_epoch: the batches of an epoch, None if unknown.

    warmup: w batches, or epochs, in which the rate rises to the optimizer's own by equal steps: the one after s of them
    has the factor (s + 1) / (w + 1), and the schedule fills the rest of the run.
    """

    def __init__(self, run: RunConfig, optimizer: Any, per_epoch: int | None):
        shape, _, unit = run.schedule.partition("/")
        if shape not in SCHEDULES or unit not in ("", "epoch"):
            raise unknown("schedule", run.schedule, ["auto", *SCHEDULES, *(f"{name}/epoch" for name in SCHEDULES)])
        self.shape, self.warmup, self.by_epoch = SCHEDULES[shape], run.warmup, bool(unit)
        moves = shape != "constant" or run.warmup > 0
        if moves and per_epoch is None and not unit:
            raise ValueError(f"the schedule {run.schedule!r} needs to know the batches of an epoch; use {shape}/epoch")
        if moves and optimizer is None:
            raise ValueError(f"this method has no learning rate that the schedule {run.schedule!r} could move")
        self.steps = run.epochs * (1 if unit or per_epoch is None else per_epoch)
        if self.warmup >= self.steps:
            raise ValueError(f"warmup must be shorter than the run of {self.steps} steps, given {run.warmup}")
        self.optimizer = optimizer if moves else None
        # A constant rate has no end, so such a run may be prolonged.
        self.description = run.schedule if shape == "constant" else f"{run.schedule} over {run.epochs} epochs"
        self.description += f", after a warm-up of {self.warmup}" * (self.warmup > 0)
        self.first: list[Any] = [_copied(group["lr"]) for group in self._groups]

    @property
    def _groups(self) -> Sequence[dict[str, Any]]:
        """Groups of the optimizer, read each time, since loading a state replaces the list."""
        return [] if self.optimizer is None else self.optimizer.param_groups

    def factor(self, step: int) -> float:
        """Return the factor on the optimizer's own rate when `step` batches or epochs are over."""
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        return self.shape((step - self.warmup) / (self.steps - self.warmup))

    def move(self, batches: int, epochs: int) -> None:
        self._multiply(self.factor(epochs if self.by_epoch else batches))

    def end(self) -> None:
        self._multiply(1.0)

    def _multiply(self, factor: float) -> None:
        for group, first in zip(self._groups, self.first, strict=True):
            rate = first * factor
            group["lr"] = group["lr"].copy_(rate) if isinstance(group["lr"], Tensor) else rate


class TorchScheduler(Rates):
    """Steps one of torch's schedulers, given or made by a function of the optimizer, after each epoch. columns: those
    that are measured; a `ReduceLROnPlateau` gets the first, or "train_loss" if nothing is."""

    def __init__(self, scheduler: LRScheduler | Callable[[Any], LRScheduler], optimizer: Any, columns: Sequence[str]):
        self.scheduler: Any = scheduler if isinstance(scheduler, LRScheduler) else scheduler(optimizer)
        if self.scheduler.optimizer is not optimizer:
            raise ValueError("the scheduler of fit moves another optimizer; build it on method.optimizer")
        plateau = isinstance(self.scheduler, ReduceLROnPlateau)
        self.column = column_of(None, columns) if plateau else None
        self.description = type(self.scheduler).__name__
        self.description += "" if scheduler is self.scheduler else f" of {describe(scheduler)}"

    def after_epoch(self, row: Mapping[str, Any]) -> None:
        self.scheduler.step(*([] if self.column is None else [row[self.column]]))

    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in self.scheduler.state_dict().items() if not callable(value)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.scheduler.load_state_dict(dict(state))


def rates_of(
    run: RunConfig, optimizer: Any, per_epoch: int | None, columns: Sequence[str], by_epoch: bool = False
) -> Rates:
    """Return the scheduler of a run's learning rates: with the schedule "auto" the rate falls to 0 in the last two
    fifths, by epochs where the batches of one are not known, or if `by_epoch`, where weights move at the end of an
    epoch; nothing moves where there is no rate."""
    if run.scheduler is None:
        if run.schedule == "auto":
            unit = "/epoch" * (by_epoch or per_epoch is None)
            run = replace(run, schedule="constant" if optimizer is None else f"decay{unit}")
        return Schedule(run, optimizer, per_epoch)
    if run.schedule not in ("auto", "constant") or run.warmup:
        raise ValueError("a schedule and a torch scheduler would both move the learning rate; give one of them")
    return TorchScheduler(run.scheduler, optimizer, columns)


def _copied(rate: Any) -> Any:
    # An ensemble's rate is a tensor with one for each member, which has to stay that tensor.
    return rate.detach().double().clone() if isinstance(rate, Tensor) else float(rate)
