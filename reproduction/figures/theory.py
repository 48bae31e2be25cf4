"""The convergence theorem: the error of alternating minimization against the bound, corrected and as printed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from reproduction import Claim, Figure, Finding, Results, statement
from reproduction.measurement import Row, Setting, Tick
from reproduction.theory import study

BLOCKS, COUPLINGS, CONDITIONS, NOISE = (2, 4, 8), (0.0, 0.5, 0.9), (1.0, 10.0), 2.0


@dataclass(frozen=True)
class TheoremCurve:
    """One curve of the study that `theory` makes. case, blocks, coupling, condition: which problem; None for
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


LIMITS: dict[str, Any] = {"coupling": 0.5, "condition": 10.0}
CURVES = [
    *(
        TheoremCurve(f"{name}, K = {K}", "inside the theorem", blocks=K, shown=shown, **LIMITS)
        for K in (2, 4, 8)
        for name, shown in (("error", "mean"), ("bound", "bound"))
    ),
    TheoremCurve("xi = min lambda (corrected)", "no noise, curvatures 1 and 10", case="no noise, uneven"),
    TheoremCurve("bound", "no noise, curvatures 1 and 10", case="no noise, uneven", shown="bound"),
    TheoremCurve("xi as printed", "no noise, curvatures 1 and 10", case="no noise, printed xi"),
]


def case(found: Row, name: str) -> Row:
    return next(row for row in found["rows"] if row["case"] == name)


@statement(
    "with the constants as printed the expected squared error falls like t^-3/2 + t^-1",
    "without noise, on curvatures 1 and 10, the slope of the error with xi as printed is below -1.4",
)
def as_printed(results: Results) -> Finding:
    (found,) = results.all(CURVES[0])
    slope = case(found, "no noise, printed xi")["slope"]
    text = f"slope {slope:.2f}, not -1.5"
    why = "the contraction lemma is wrong: its factor belongs to the squared norm, so that xi is too large"
    return Finding(text, "reproduced") if slope < -1.4 else Finding(text, "refuted", why)


@statement(
    "corrected, with xi = min lambda, the theorem holds",
    "the error is below the bound at all times in all problems that fulfil the assumptions, and without noise its "
    "slope is below -1.4",
)
def corrected(results: Results) -> Finding:
    (found,) = results.all(CURVES[0])
    inside = [row for row in found["rows"] if not row["outside"]]
    broken = [row["case"] for row in inside if row["broken"]]
    slopes = [row["slope"] for row in inside if row["case"] == "quadratic"]
    still = case(found, "no noise, uneven")["slope"]
    text = (
        f"below the bound in {len(inside) - len(broken)} of {len(inside)} problems, slopes {min(slopes):.2f} to "
        f"{max(slopes):.2f}, without noise {still:.2f}"
    )
    if broken or still >= -1.4:
        return Finding(text, "refuted", f"the bound is broken by {broken}" if broken else "it falls too slowly")
    return Finding(text, "reproduced")


FIGURE = Figure(
    name="theory",
    title="Squared error against the theorem's bound",
    runs=CURVES,
    axes=("rounds",),
    minutes=2,
    measure="expected squared error",
    log="xy",
    claims=[
        Claim(
            "C16",
            "expected squared error below the bound of the last theorem",
            "rate t^-3/2 + t^-1",
            [as_printed, corrected],
        )
    ],
)
