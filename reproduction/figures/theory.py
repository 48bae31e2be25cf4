"""The convergence theorem: the error of alternating minimization against the bound, corrected and as printed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from reproduction import Claim, Figure, Finding, Results, Row, Setting, Statement, Tick
from reproduction.theory import study


@dataclass(frozen=True)
class TheoremCurve:
    """One curve of the study. case, blocks, coupling, condition: which problem; None for any. shown: "mean" error or
    "bound"."""

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
        """Return that of the study: all curves have one."""
        return {"measured": "theorem", "steps": self.steps, "runs": self.runs}

    def lacking(self, setting: Setting) -> str:
        return ""

    def reduced(self) -> "TheoremCurve":
        return replace(self, steps=2_000, runs=200)

    def make(self, seeds: Sequence[int], setting: Setting, tick: Tick) -> list[Row]:
        rounds = study.rounds_in_all(self.steps)

        def report(done: int, text: str) -> None:
            tick(done, rounds, text)

        return [{"seed": seed, **study.study(self.steps, self.runs, seed, report)} for seed in seeds]

    def points(self, row: Row, axis: str) -> list[tuple[float, float]]:
        """Return squared error or bound against "rounds"; none where there is no bound."""
        wanted = {"case": self.case, "K": self.blocks, "coupling": self.coupling, "condition": self.condition}
        known = {name: value for name, value in wanted.items() if value is not None}
        found = next(each for each in row["rows"] if known.items() <= each.items())
        return list(zip(found["times"], found[self.shown] or [], strict=False))


LIMITS: dict[str, Any] = {"coupling": 0.5, "condition": 10.0}
UNEVEN = "no noise, curvatures 1 and 10"
CURVES = [
    *(
        TheoremCurve(f"{name}, K = {K}", "inside the theorem", blocks=K, shown=shown, **LIMITS)
        for K in (2, 4, 8)
        for name, shown in (("error", "mean"), ("bound", "bound"))
    ),
    TheoremCurve("xi = min lambda (corrected)", UNEVEN, case="no noise, uneven"),
    TheoremCurve("bound", UNEVEN, case="no noise, uneven", shown="bound"),
    TheoremCurve("xi as printed", UNEVEN, case="no noise, printed xi"),
]


def slope(results: Results, case: str) -> float:
    (found,) = results.all(CURVES[0])
    return float(next(row for row in found["rows"] if row["case"] == case)["slope"])


def as_printed(results: Results) -> Finding:
    found = slope(results, "no noise, printed xi")
    text = f"slope {found:.2f}, not -1.5"
    why = "the contraction lemma is wrong: its factor belongs to the squared norm, so that xi is too large"
    return Finding(text, "reproduced") if found < -1.4 else Finding(text, "refuted", why)


def corrected(results: Results) -> Finding:
    (found,) = results.all(CURVES[0])
    inside = [row for row in found["rows"] if not row["outside"]]
    broken = [row["case"] for row in inside if row["broken"]]
    slopes = [row["slope"] for row in inside if row["case"] == "quadratic"]
    still = slope(results, "no noise, uneven")
    text = (
        f"below the bound in {len(inside) - len(broken)} of {len(inside)} problems, slopes {min(slopes):.2f} to "
        f"{max(slopes):.2f}, without noise {still:.2f}"
    )
    if broken or still >= -1.4:
        return Finding(text, "refuted", f"the bound is broken by {broken}" if broken else "it falls too slowly")
    return Finding(text, "reproduced")


STATEMENTS = [
    Statement(
        "with the constants as printed the expected squared error falls like t^-3/2 + t^-1",
        "without noise, on curvatures 1 and 10, the slope of the error with xi as printed is below -1.4",
        as_printed,
    ),
    Statement(
        "corrected, with xi = min lambda, the theorem holds",
        "the error is below the bound at all times in all problems that fulfil the assumptions, and without noise its "
        "slope is below -1.4",
        corrected,
    ),
]
TEXT = "expected squared error below the bound of the last theorem"
FIGURES = [
    Figure(
        name="theory",
        title="Squared error against the theorem's bound",
        runs=CURVES,
        axes=("rounds",),
        minutes=2,
        measure="expected squared error",
        log="xy",
        claims=[Claim("C16", TEXT, "rate t^-3/2 + t^-1", STATEMENTS)],
    )
]
