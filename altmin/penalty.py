"""mu, the price of a code's distance from what its block computes, and how it grows."""

from typing import Any


class Penalty:
    """mu starts at `start`, gains `increment` with each mini-batch, is multiplied by `growth` with each epoch, and
    stops at `maximum` (None: nowhere).

    A small mu lets codes run ahead of the weights: a fast start. A large one keeps them close, and the output block
    then learns on what it will be given later: a good end. The default goes from the one to the other.

    >>> mu = Penalty(start=1.0, increment=0.5, growth=2.0, maximum=3.5)
    >>> mu.step(); mu.value
    1.5
    >>> mu.end_epoch(); mu.value
    3.0
    >>> mu.end_epoch(); mu.value
    3.5
    """

    def __init__(self, start: float = 1.0, increment: float = 0.2, growth: float = 1.0, maximum: float | None = 100.0):
        for name, value, low in (("start", start, 0.0), ("growth", growth, 0.0)):
            if not value > low:
                raise ValueError(f"{name} of the penalty must be above {low}, given {value!r}")
        if not increment >= 0:
            raise ValueError(f"increment of the penalty must be at least 0, given {increment!r}")
        if maximum is not None and not maximum >= start:
            raise ValueError(f"maximum of the penalty must be at least its start {start}, given {maximum!r}")
        self.start, self.increment, self.growth, self.maximum = start, increment, growth, maximum
        self.value = start

    def __repr__(self) -> str:
        return f"Penalty({self.start}, increment={self.increment}, growth={self.growth}, maximum={self.maximum})"

    def step(self) -> None:
        self._set(self.value + self.increment)

    def end_epoch(self) -> None:
        self._set(self.value * self.growth)

    def _set(self, value: float) -> None:
        self.value = value if self.maximum is None else min(value, self.maximum)

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = float(state["value"])
