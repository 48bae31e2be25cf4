"""Learning-rate schedules: factors on the rate, as functions of the part of the run that is over."""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from altmin.errors import unknown


def warmed_up(t: float, part: float) -> float:
    """From 1/25 in a line to 1 at `part` of the run, then down to 0 along half a cosine.

    >>> warmed_up(0.0, 0.3), warmed_up(0.3, 0.3), round(warmed_up(0.65, 0.3), 9)
    (0.04, 1.0, 0.5)
    """
    if t < part:
        return 0.04 + 0.96 * t / part
    return (1 + math.cos(math.pi * (t - part) / (1 - part))) / 2


SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda t: 1.0,
    "linear": lambda t: 1 - t,
    "cosine": lambda t: (1 + math.cos(math.pi * t)) / 2,
    "step": lambda t: 0.1 ** ((t >= 0.5) + (t >= 0.75)),
    "one-cycle": lambda t: warmed_up(t, 0.3),
    "warmup-cosine": lambda t: warmed_up(t, 0.03),
}


class Schedule:
    """Sets the optimizer's rates after each batch, or for a name with "/epoch" after each epoch. A method without an
    optimizer (None) has the constant one only."""

    def __init__(self, name: str, optimizer: Any, epochs: int, batches: int):
        if not isinstance(name, str):
            raise TypeError(f'a schedule is named, such as "cosine", given {name!r}')
        shape, _, unit = name.partition("/")
        if shape not in SCHEDULES or unit not in ("", "epoch"):
            raise unknown("schedule", name, [*SCHEDULES, *(f"{each}/epoch" for each in SCHEDULES)])
        self.factor, self.steps, self.by_epoch = SCHEDULES[shape], epochs if unit else batches, bool(unit)
        # A constant rate has no end, so such a run may be prolonged.
        self.description = name if shape == "constant" else f"{name} over {epochs} epochs"
        if optimizer is None and shape != "constant":
            raise ValueError(
                f"this method has no learning rate that the schedule {name!r} could move; use schedule='constant'"
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

    def start(self, batches: int, epochs: int) -> None:
        """The rates for the next batch of a run in which so many are over."""
        self.set(epochs if self.by_epoch else batches)

    def after_batch(self, batches: int) -> None:
        if not self.by_epoch:
            self.set(batches)

    def after_epoch(self, epochs: int) -> None:
        if self.by_epoch:
            self.set(epochs)

    def set(self, step: int) -> None:
        """The rates for when `step` batches or epochs are over."""
        self._multiply(self.factor(step / self.steps))

    def restore(self) -> None:
        """The optimizer's own rates again."""
        self._multiply(1.0)

    def _multiply(self, factor: float) -> None:
        for group, first in zip(self.groups, self.first, strict=True):
            rate = first * factor
            group["lr"] = group["lr"].copy_(rate) if isinstance(group["lr"], Tensor) else rate
