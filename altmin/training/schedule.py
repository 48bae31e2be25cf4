"""Learning-rate schedules: factors on the rate, as functions of the part of the run that is over."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from altmin.common.errors import demand, unknown


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
    optimizer (None) has the constant one only. batches: those of the run; None if nobody knows, then epochs count.

    warmup: w batches, or epochs, in which the rate rises to the optimizer's own by equal steps: the one after s of them
    has the factor (s + 1) / (w + 1), and the schedule fills the rest of the run. `one-cycle` has a rise of its own.
    """

    def __init__(self, name: str, optimizer: Any, epochs: int, batches: int | None, warmup: int = 0):
        if not isinstance(name, str):
            raise TypeError(f'a schedule is named, such as "cosine", given {name!r}')
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
        """Asked of the optimizer each time: another list is there when it has loaded a state."""
        return [] if self.optimizer is None else self.optimizer.param_groups

    def factor(self, step: int) -> float:
        """On the optimizer's own rate, when `step` batches or epochs are over."""
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        return self.shape((step - self.warmup) / (self.steps - self.warmup))

    def begin(self, batches: int, epochs: int) -> None:
        """The rates for when so many batches and epochs are over."""
        self.after_batch(batches)
        self.after_epoch(epochs)

    @contextmanager
    def during(self) -> Iterator[None]:
        """Within, the rates are the schedule's; after it the optimizer's own."""
        try:
            yield
        finally:
            self._multiply(1.0)

    def after_batch(self, batches: int) -> None:
        if not self.by_epoch:
            self.set(batches)

    def after_epoch(self, epochs: int, row: Mapping[str, Any] = {}) -> None:
        """row: what the epoch has measured, of which a schedule knows nothing."""
        if self.by_epoch:
            self.set(epochs)

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the rates follow from where the run is."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass

    def set(self, step: int) -> None:
        """The rates for when `step` batches or epochs are over."""
        self._multiply(self.factor(step))

    def _multiply(self, factor: float) -> None:
        for group, first in zip(self.groups, self.first, strict=True):
            rate = first * factor
            group["lr"] = group["lr"].copy_(rate) if isinstance(group["lr"], Tensor) else rate
