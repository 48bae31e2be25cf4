"""What moves the learning rate in a run: factors on it as functions of the part of the run that is over, or one of
torch's schedulers, stepped after epochs or batches and kept in checkpoints."""

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from altmin.common.describe import describe, plain
from altmin.common.errors import demand, shown, unknown
from altmin.training.callbacks import column_of
from altmin.training.evaluate import higher_is_better

Given = LRScheduler | Callable[[Any], LRScheduler]
"""A scheduler on the method's optimizer, or a function that makes one of it."""
MOVED = ("lr", "betas", "momentum")
"""Options of an optimizer that schedulers move."""


def half_wave(start: float, end: float, t: float) -> float:
    """From start, at t = 0, to end, at t = 1, along half a wave of a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * t)) / 2


def one_cycle(t: float) -> float:
    """From 1/25 to 1 in the first 0.3 of a run and down to 1/250,000 in the rest, each along half a wave.

    The numbers are those of torch's OneCycleLR. Smith and Topin, 2018, "Super-Convergence".
    """
    return half_wave(1 / 25, 1.0, t / 0.3) if t < 0.3 else half_wave(1.0, 1 / 250_000, (t - 0.3) / 0.7)


SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda t: 1.0,
    "linear": lambda t: 1 - t,
    "cosine": lambda t: half_wave(1.0, 0.0, t),
    "step": lambda t: 0.1 ** ((t >= 0.5) + (t >= 0.75)),
    "one-cycle": one_cycle,
}


class Schedule:
    """Sets the optimizer's rates after each batch, or for a name with "/epoch" after each epoch. A method without an
    optimizer (None) has the constant one only. batches: those of the run; None if unknown, then epochs count.

    warmup: w batches, or epochs, in which the rate rises to the optimizer's own by equal steps: the one after s of them
    has the factor (s + 1) / (w + 1), and the schedule fills the rest of the run. `one-cycle` has a rise of its own.
    """

    def __init__(self, name: str, optimizer: Any, epochs: int, batches: int | None, warmup: int = 0):
        if not isinstance(name, str):
            raise TypeError(f'a schedule is named, such as "cosine", given {shown(name)}')
        shape, _, unit = name.partition("/")
        if shape not in SCHEDULES or unit not in ("", "epoch"):
            raise unknown("schedule", name, [*SCHEDULES, *(f"{each}/epoch" for each in SCHEDULES)])
        demand("fit", "warmup", warmup, whole=True)
        self.warmup, self.by_epoch = int(warmup), bool(unit)
        self.moves = shape != "constant" or self.warmup > 0
        if batches is None and self.moves and not unit:
            raise ValueError(
                f"the schedule {name!r} needs to know how many batches an epoch has, and the data do not say; give "
                f"epoch_batches, or {shape + '/epoch'!r}"
            )
        self.shape, self.steps = SCHEDULES[shape], epochs if unit or batches is None else batches
        if self.warmup >= self.steps:
            counted = f"{self.steps} {'epoch' if unit else 'batch'}{('s' if unit else 'es') * (self.steps > 1)}"
            raise ValueError(f"a warm-up must be shorter than the run, which has {counted}, given warmup={warmup}")
        if self.warmup and shape == "one-cycle":
            raise ValueError("the schedule 'one-cycle' has a warm-up of its own; leave out warmup, or take 'cosine'")
        # A constant rate has no end, so such a run may be prolonged.
        self.description = name if shape == "constant" else f"{name} over {epochs} epochs"
        self.description += f", after a warm-up of {self.warmup}" * (self.warmup > 0)
        if optimizer is None and self.moves:
            raise ValueError(
                f"this method has no learning rate that the schedule {name!r} could move; use schedule='constant'"
                f"{' without warmup' * (self.warmup > 0)}"
            )
        self.optimizer = optimizer
        rates = [group["lr"] for group in self.groups]
        # An ensemble's rate is a tensor with one for each member, which has to stay that tensor.
        self.first: list[Any] = [
            rate.detach().double().clone() if isinstance(rate, Tensor) else float(rate) for rate in rates
        ]

    @property
    def groups(self) -> list[dict[str, Any]]:
        """Read from the optimizer each time, since loading a state replaces the list."""
        return [] if self.optimizer is None else self.optimizer.param_groups

    def factor(self, step: int) -> float:
        """On the optimizer's own rate, when `step` batches or epochs are over."""
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        return self.shape((step - self.warmup) / (self.steps - self.warmup))

    def begin(self, batches: int, epochs: int) -> None:
        """The rates after the given numbers of batches and epochs."""
        self.after_batch(batches)
        self.after_epoch(epochs)

    @contextmanager
    def during(self) -> Iterator[None]:
        """Within, the rates are the schedule's; after it the optimizer's own."""
        try:
            yield
        finally:
            self.restore()

    def restore(self) -> None:
        """The optimizer has its own rates again."""
        self._multiply(1.0)

    def after_batch(self, batches: int) -> None:
        if not self.by_epoch:
            self._multiply(self.factor(batches))

    def after_epoch(self, epochs: int, row: Mapping[str, Any] = {}) -> None:
        """row: the epoch's metrics, which a schedule does not use."""
        if self.by_epoch:
            self._multiply(self.factor(epochs))

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the rates follow from the position in the run."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass

    def _multiply(self, factor: float) -> None:
        for group, first in zip(self.groups, self.first, strict=True):
            rate = first * factor
            group["lr"] = group["lr"].copy_(rate) if isinstance(group["lr"], Tensor) else rate


class TorchScheduler(Schedule):
    """Steps a torch scheduler where `Schedule` would set rates.

    every: "epoch" or "batch". columns: those that are measured; a `ReduceLROnPlateau` gets the first, or "train_loss"
    if nothing is. One that a function makes belongs to the run: after it, the optimizer's groups are as before.
    """

    def __init__(self, given: Given, optimizer: Any, every: str, columns: Sequence[str]):
        if every not in ("epoch", "batch"):
            raise ValueError(f'scheduler_every of fit is "epoch" or "batch", given {every!r}')
        if not isinstance(optimizer, Optimizer):
            raise ValueError("this method has no torch optimizer whose rates a scheduler could move; leave it out")
        self.optimizer, self.by_epoch = optimizer, every == "epoch"
        self.own = not isinstance(given, LRScheduler)
        self.before = [_options(group) for group in optimizer.param_groups]
        try:
            self.scheduler = self._made(given)
            self.column = self._watched(columns)
        except Exception:
            self.restore()
            raise
        self.description = f"{type(self.scheduler).__name__} by {every}: {self._settings()}"

    def _made(self, given: Any) -> Any:
        """The scheduler; TypeError or ValueError if it is none, or one of another optimizer."""
        made = given(self.optimizer) if self.own and callable(given) else given
        if not isinstance(made, LRScheduler):
            raise TypeError(
                f"scheduler of fit is torch's, or a function (optimizer) -> scheduler, given {shown(given)}"
            )
        if made.optimizer is not self.optimizer:
            raise ValueError("the scheduler moves another optimizer; build it on method.optimizer")
        return made

    def _watched(self, columns: Sequence[str]) -> str | None:
        """The column that the scheduler gets, if it gets one; ValueError if it takes the bad side for the good one."""
        if not isinstance(self.scheduler, ReduceLROnPlateau):
            return None
        if not self.by_epoch:
            raise ValueError('ReduceLROnPlateau looks at what an epoch measured; leave out scheduler_every="batch"')
        column = column_of("ReduceLROnPlateau", None, columns)
        higher = higher_is_better(column)
        if higher is not None and higher != (self.scheduler.mode == "max"):
            raise ValueError(
                f"ReduceLROnPlateau gets {column} here, of which {'more' if higher else 'less'} is better; give it "
                f'mode="{"max" if higher else "min"}"'
            )
        return column

    def _settings(self) -> str:
        """Its settings at the start of a run; later values are ignored."""
        later = ("last_epoch", "best", "num_bad_epochs", "cooldown_counter", "T_cur", "T_i", "optimizer")
        settings = {
            name: value
            for name, value in vars(self.scheduler).items()
            if not name.startswith("_") and name not in later and not callable(value)
        }
        return ", ".join(f"{name}={describe(plain(value))}" for name, value in sorted(settings.items()))

    def begin(self, batches: int, epochs: int) -> None:
        """Nothing: the rates are where the scheduler has put them."""

    def after_batch(self, batches: int) -> None:
        if not self.by_epoch:
            self.scheduler.step()

    def after_epoch(self, epochs: int, row: Mapping[str, Any] = {}) -> None:
        if self.by_epoch:
            self.scheduler.step(*([] if self.column is None else [row[self.column]]))

    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in self.scheduler.state_dict().items() if not callable(value)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.scheduler.load_state_dict(_typed(state, vars(self.scheduler)))

    def restore(self) -> None:
        """Undoes what a scheduler of the run's own has done to the groups; other options, such as how steps are
        executed, are left unchanged."""
        if self.own:
            for group, before in zip(self.optimizer.param_groups, self.before, strict=True):
                for name in set(group) - set(before) - {"params"}:
                    del group[name]
                group.update({k: v for k, v in before.items() if k in MOVED or k not in self.optimizer.defaults})


def _typed(state: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A state that was read from a checkpoint, where a Counter has become a dict, with the types of the scheduler's own
    attributes; also of the schedulers inside one."""
    found = copy.deepcopy(dict(state))
    for name, value in found.items():
        if isinstance(own.get(name), Counter):
            found[name] = Counter(value)
        elif name == "_schedulers":
            found[name] = [_typed(each, vars(inner)) for each, inner in zip(value, own[name], strict=True)]
    return found


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.clone() if isinstance(v, Tensor) else v for k, v in group.items() if k != "params"}
