"""`TheoremCurve`: the error of alternating minimization on problems of the convergence theorem, or its bound."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from altmin.paper.reproduce.measurement import Row, Setting, Tick
from altmin.paper.theory import study

BLOCKS, COUPLINGS, CONDITIONS, NOISE = (2, 4, 8), (0.0, 0.5, 0.9), (1.0, 10.0), 2.0


@dataclass(frozen=True)
class TheoremCurve:
    """One curve of the study that `altmin theory` makes. case, blocks, coupling, condition: which problem; None for
    any. shown: "mean" error or "bound"."""

    name: str
    panel: str
    case: str = "quadratic"
    blocks: int | None = None
    coupling: float | None = None
    condition: float | None = None
    shown: str = "mean"
    steps: int = 100_000
    runs: int = 2_000
    seeds: int = 1

    def config(self) -> dict[str, Any]:
        """That of the study: all curves have one."""
        return {"measured": "theorem", "steps": self.steps, "runs": self.runs}

    def lacking(self, setting: Setting) -> str:
        return ""

    def reduced(self) -> "TheoremCurve":
        return replace(self, steps=2_000, runs=200)

    def make(self, seeds: Sequence[int], setting: Setting, tick: Tick) -> list[Row]:
        rounds = study.rounds_in_all(BLOCKS, self.steps)
        rows = []
        for seed in seeds:
            given = (BLOCKS, COUPLINGS, CONDITIONS, NOISE, self.steps, self.runs, seed)
            rows.append({"seed": seed, **study.study(*given, lambda done, text: tick(done, rounds, text))})
        return rows

    def points(self, row: Row, axis: str) -> list[tuple[float, float]]:
        """Squared error or bound against "rounds"; none where there is no bound."""
        found = next(each for each in row["rows"] if self._is(each))
        return list(zip(found["times"], found[self.shown] or [], strict=False))

    def _is(self, row: Row) -> bool:
        wanted = {"case": self.case, "K": self.blocks, "coupling": self.coupling, "condition": self.condition}
        return all(value is None or row[name] == value for name, value in wanted.items())
