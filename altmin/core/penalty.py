"""Penalty mu, the price of a code's distance from what its block computes, and its schedule."""

import math
from typing import Any

from torch import Tensor

from altmin.common.errors import demand
from altmin.common.state import matched


def grown(mu: Any, increment: Any, growth: Any, maximum: Any) -> Any:
    """Return growth mu + increment, at most maximum (None: no limit): for numbers, or tensors with one entry for each
    member."""
    new, limit = mu * growth + increment, math.inf if maximum is None else maximum
    return new.clamp_max(limit) if isinstance(new, Tensor) else min(new, limit)


class Penalty:
    """mu starts at `start`, gains `increment` with each mini-batch, is multiplied by `growth` with each epoch, and
    stops at `maximum` (None: no limit).

    With a small mu codes move far from what the weights compute, and training starts fast. With a large mu they
    stay close, so that the output block learns on the inputs that it will have later, and training ends well. The
    default goes from small to large.

    A subclass has a schedule of its own by `step` and `end_epoch`, which set `value`. Its state is `value` and all
    other numbers among its attributes but these four options.

    >>> mu = Penalty(start=1.0, increment=0.5, growth=2.0, maximum=3.5)
    >>> mu.step(); mu.value
    1.5
    >>> mu.end_epoch(); mu.value
    3.0
    >>> mu.end_epoch(); mu.value
    3.5
    """

    def __init__(self, start: float = 10.0, increment: float = 0.2, growth: float = 1.0, maximum: float | None = 100.0):
        demand("Penalty", "start", start, above=True)
        demand("Penalty", "increment", increment)
        demand("Penalty", "growth", growth, above=True)
        if maximum is not None:
            demand("Penalty", "maximum", maximum, low=start)
        self.start, self.increment, self.growth, self.maximum = start, increment, growth, maximum
        self.value = float(start)

    def __repr__(self) -> str:
        return f"Penalty({self.start}, increment={self.increment}, growth={self.growth}, maximum={self.maximum})"

    def step(self) -> None:
        self.value = grown(self.value, self.increment, 1.0, self.maximum)

    def end_epoch(self) -> None:
        self.value = grown(self.value, 0.0, self.growth, self.maximum)

    def state_dict(self) -> dict[str, Any]:
        numbers = {name: v for name, v in vars(self).items() if isinstance(v, int | float)}
        return {name: v for name, v in numbers.items() if name not in ("start", "increment", "growth", "maximum")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load another's `state_dict`; one that does not fit is a ValueError, and nothing changes."""
        vars(self).update(matched(state, dict.fromkeys(self.state_dict(), 0.0), "Penalty"))
        self.value = float(self.value)
