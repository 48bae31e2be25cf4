"""What methods came to on the tasks, as tables: a task each, a method a row, a column for each mark."""

from collections.abc import Sequence
from statistics import fmean

from altmin.paper.learning.learner import Learner
from altmin.paper.reproduce.figure import Figure
from altmin.paper.reproduce.results import Results, words

Table = tuple[str, list[str], list[list[str]]]
"""What the table shows, the names of its columns, and its rows."""


def tables(figure: Figure, results: Results) -> list[Table]:
    """Those of all tasks of which something was measured."""
    found = []
    for panel in figure.panels:
        runs = [run for run in figure.runs if run.panel == panel and results.of(run)]
        if runs:
            found.append(_table(figure.measured(panel), runs, results))
    return found


def _table(measure: str, runs: Sequence[Learner], results: Results) -> Table:
    """Of one task. Runs of different lengths have columns of their own; each of these has a rate of its own, and only
    its end counts."""
    columns: dict[int, None] = {}
    lines: dict[str, dict[int, str]] = {}
    about: dict[str, list[Learner]] = {}
    for run in runs:
        about.setdefault(run.name, []).append(run)
        for batch, value in _cells(run, results).items():
            columns[batch] = None
            lines.setdefault(run.name, {})[batch] = value
    marks = sorted(columns)
    rows = [
        [
            name,
            _options(about[name]),
            *(lines.get(name, {}).get(mark, "") for mark in marks),
            _seconds(about[name], results),
        ]
        for name in about
    ]
    return f"{runs[0].panel}: {measure}", ["method", "chosen", *(f"{n:,} batches" for n in marks), "seconds"], rows


def _cells(run: Learner, results: Results) -> dict[int, str]:
    """Mean and standard deviation after each mark; the number of seeds that diverged, instead, where one has."""
    rows = results.of(run)[: run.seeds]
    lost = sum("diverged" in row for row in rows)
    found: dict[int, list[float]] = {}
    for row in rows:
        for x, y in run.points(row, "batches"):
            found.setdefault(int(x), []).append(y)
    form = ".4f" if not run.lower_is_better else ".4g"
    return {
        batch: words(values, form) if len(values) == len(rows) else f"{lost} of {len(rows)} diverged"
        for batch, values in found.items()
    }


def _options(runs: Sequence[Learner]) -> str:
    """What the search has chosen, for each length."""
    names = [name for name in ("lr", "weight_decay") if name in runs[0].options]
    each = [", ".join(f"{name} {run.options[name]:g}" for name in names) for run in runs]
    return each[0] if len(set(each)) == 1 else "; ".join(each)


def _seconds(runs: Sequence[Learner], results: Results) -> str:
    """Of training, up to the last mark, the mean of seeds; of the longest run."""
    ends = [row["points"][-1]["seconds"] for row in results.of(runs[-1]) if row["points"] and "diverged" not in row]
    return f"{fmean(ends):.3g}" if ends else ""
