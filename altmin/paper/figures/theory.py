"""The convergence theorem: the error of alternating minimization against the bound, corrected and as printed."""

from typing import Any

from altmin.paper.reproduce import Figure, Finding, Results, TheoremCurve, claim

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


@claim("C16", "expected squared error below the bound of the last theorem", "rate t^-3/2 + t^-1")
def bound(results: Results) -> Finding:
    (found,) = results.all(CURVES[0])
    inside = [row for row in found["rows"] if not row["outside"]]
    broken = [row["case"] for row in inside if row["broken"]]
    slopes = [row["slope"] for row in inside if row["case"] == "quadratic"]
    still, printed = (
        next(row for row in found["rows"] if row["case"] == case)
        for case in ("no noise, uneven", "no noise, printed xi")
    )
    text = (
        f"with xi = min lambda the error is below the bound in all {len(inside)} problems, slopes {min(slopes):.2f} to "
        f"{max(slopes):.2f}, without noise {still['slope']:.2f}; with xi as printed {printed['slope']:.2f}, not -1.5"
    )
    fails = "as stated the contraction lemma is wrong, and with its xi the error falls too slowly; corrected it holds"
    return Finding(
        text, not broken and printed["slope"] < -1.4, None, f"the bound is broken by {broken}" if broken else fails
    )


FIGURE = Figure(
    name="theory",
    title="Squared error against the theorem's bound",
    runs=CURVES,
    axes=("rounds",),
    minutes=2,
    measure="expected squared error",
    log="xy",
    claims=[bound],
)
