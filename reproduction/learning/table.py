"""What methods came to on the tasks, as tables: a task each, a method a row, a column for each mark."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from reproduction.figure import Curve, Figure
from reproduction.learning.learner import Learner
from reproduction.results import Results, words

Table = tuple[str, list[str], list[list[str]]]
"""What the table shows, the names of its columns, and its rows."""
REFERENCES = ("adam", "adamw")
"""The first of these methods that a task has is the one whose end others are to reach."""


def tables(figure: Figure, results: Results) -> list[Table]:
    """Those of all tasks of which something was measured."""
    found = []
    for panel in figure.panels:
        runs = [run for run in figure.runs if run.panel == panel and results.of(run)]
        if runs:
            curves = {curve.name: curve for curve in figure.curves(results, "seconds") if curve.panel == panel}
            found.append(_table(f"{panel}: {figure.measured(panel)}", runs, results, curves))
    return found


def _table(title: str, runs: Sequence[Learner], results: Results, curves: Mapping[str, Curve]) -> Table:
    """Of one task. Runs of different lengths have columns of their own, and each a rate of its own."""
    cells: dict[str, dict[int, str]] = {}
    for run in runs:
        cells.setdefault(run.name, {}).update(_cells(run, results))
    marks = sorted({batch for each in cells.values() for batch in each})
    head, more, timed = (
        ["method", "chosen", *(f"{n:,} batches" for n in marks)],
        _to_reference(runs, curves),
        runs[0].timed,
    )
    rows = []
    for name, of in cells.items():
        own = [run for run in runs if run.name == name]
        row = [name, _options(own), *(of.get(mark, "") for mark in marks)]
        rows.append([*row, *([_seconds(own[-1], results)] if timed else []), *([more[name]] if more else [])])
    return title, [*head, *["seconds"] * timed, *["seconds to Adam's end"] * bool(more)], rows


def _cells(run: Learner, results: Results) -> dict[int, str]:
    """Mean and standard deviation after each mark; instead, where some seeds have diverged before, how many."""
    rows, found = results.of(run)[: run.seeds], dict[int, list[float]]()
    for row in rows:
        for x, y in run.points(row, "batches"):
            found.setdefault(int(x), []).append(y)
    form = ".4g" if run.lower_is_better else ".4f"
    lost = f"{sum('diverged' in row for row in rows)} of {len(rows)} diverged"
    return {batch: words(values, form) if len(values) == len(rows) else lost for batch, values in found.items()}


def _options(runs: Sequence[Learner]) -> str:
    """What the search has chosen, for each length."""
    names = [name for name in ("lr", "weight_decay") if name in runs[0].options]
    each = [", ".join(f"{name} {run.options[name]:g}" for name in names) for run in runs]
    return each[0] if len(set(each)) == 1 else "; ".join(each)


def _seconds(run: Learner, results: Results) -> str:
    """Of training, up to the end, the mean of seeds."""
    rows = [row for row in results.of(run)[: run.seeds] if "diverged" not in row and run.has_seconds(row)]
    ends = [row["points"][-1]["seconds"] for row in rows]
    return f"{fmean(ends):.3g}" if ends else ""


def _to_reference(runs: Sequence[Learner], curves: Mapping[str, Curve]) -> dict[str, str]:
    """For each method, after how many seconds its mean reaches what Adam's comes to at its end, between two marks by a
    straight line. Empty without Adam, and where lengths are runs of their own."""
    found = [run for method in REFERENCES for run in runs if run.method == method and run.name in curves]
    if not found or runs[0].at_end:
        return {}
    sign = -1 if runs[0].lower_is_better else 1
    goal = sign * fmean(curves[found[0].name].points[-1][1])
    return {
        run.name: reached([(x, sign * fmean(values)) for x, values in curves[run.name].points], goal)
        if run.name in curves
        else ""
        for run in runs
    }


def reached(points: Sequence[tuple[float, float]], goal: float) -> str:
    """Where points first come to a goal from below.

    >>> reached([(1, 0.5), (3, 0.7), (5, 0.6)], 0.6), reached([(1, 0.5)], 0.4), reached([(1, 0.5)], 0.6)
    ('2', 'at most 1', '')
    """
    if points and points[0][1] >= goal:
        return f"at most {points[0][0]:.3g}"
    for (a, low), (b, high) in pairwise(points):
        if high >= goal:
            return f"{a + (b - a) * (goal - low) / (high - low):.3g}"
    return ""
