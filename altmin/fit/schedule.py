"""Learning-rate schedules: factors on the rate, as functions of the part of the run that is over."""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from altmin.errors import unknown

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda t: 1.0,
    "linear": lambda t: 1 - t,
    "cosine": lambda t: (1 + math.cos(math.pi * t)) / 2,
    "step": lambda t: 0.1 ** ((t >= 0.5) + (t >= 0.75)),
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

    def after_batch(self, batches: int) -> None:
        if not self.by_epoch:
            self.set(batches)

    def after_epoch(self, epochs: int) -> None:
        if self.by_epoch:
            self.set(epochs)

    def set(self, step: int) -> None:
        """The rates for when `step` batches or epochs are over; those of 0 are the optimizer's own."""
        for group, first in zip(self.groups, self.first, strict=True):
            rate = first * self.factor(step / self.steps)
            group["lr"] = group["lr"].copy_(rate) if isinstance(group["lr"], Tensor) else rate
