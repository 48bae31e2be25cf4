"""What the tests of searches share: training in place of which accuracy is a known function of the options."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from reproduction.run import Run


def peak(options: Mapping[str, Any], seed: int = 0) -> float:
    """1 at lr = 0.02, falling with the square of the distance in decades."""
    return math.exp(-(math.log10(options["lr"] / 0.02) ** 2))


class Trained:
    """Stands for `Run.make_all` and keeps what it was asked for, call by call."""

    def __init__(self, surface: Callable[[Mapping[str, Any], int], float], monkeypatch: pytest.MonkeyPatch):
        self.surface = surface
        self.calls: list[list[tuple[dict[str, Any], int]]] = []
        self.parts: set[str] = set()
        self.stop_after: int | None = None
        monkeypatch.setattr(Run, "make_all", lambda *given: self(*given))

    def __call__(self, run: Run, jobs: Sequence[tuple[Mapping[str, Any], int]], setting: Any, tick: Any) -> list[Any]:
        if len(self.calls) == self.stop_after:
            raise KeyboardInterrupt
        self.calls.append([(dict(options), seed) for options, seed in jobs])
        self.parts.add(run.part)
        tick(1, 2, "under way")
        return [self._row(run, self.surface(options, seed), seed) for options, seed in jobs]

    @staticmethod
    def _row(run: Run, value: float, seed: int) -> dict[str, Any]:
        """NaN stands for a run that diverged after it was evaluated for the first time."""
        ends = [{"epoch": 1, "validation_accuracy": 0.5}, {"epoch": 2, "validation_accuracy": value}]
        row = {
            "seed": seed,
            "batches": [{"batch": n, "validation_accuracy": value / 2} for n in run.eval_batches if n <= 100],
            "epochs": ends,
            **{"data": "samples", "rows": 100},
        }
        return {**row, "epochs": ends[:1], "diverged": "the loss is not finite"} if math.isnan(value) else row
