"""Tasks on which methods are compared, the choice of each method's rate by one protocol, and tables of what they came
to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from altmin import methods
from reproduction.figure import Figure
from reproduction.learning.learner import Learner
from reproduction.results import Results, Row, words
from reproduction.search import Options, Search, settings

FURTHER = 6
"""How many rates a search tries beyond its grid."""


@dataclass(frozen=True)
class Task:
    """name: a short one, for `--only`. title: of its panel. run: what all its runs have in common, as in `Learner`.
    lengths: if there are several, the settings in which they differ, each a run with a rate of its own of which only
    the end is drawn. rates: the grid, for methods whose steps have Adam's size. steps: for some methods, how many times
    as large their rates are. decays: the weight decays that are searched for all methods. search: what the runs have of
    their own that choose a rate. without: the names of those that are left out."""

    name: str
    title: str
    run: Mapping[str, Any]
    rates: Sequence[float]
    lengths: Sequence[Mapping[str, Any]] = ({},)
    steps: Mapping[str, float] = field(default_factory=dict)
    decays: Sequence[float] = ()
    search: Mapping[str, Any] = field(default_factory=dict)
    without: Sequence[str] = ()


@dataclass(frozen=True)
class Opponent:
    """A method, with the options that are fixed. steps: how many times as large as Adam's its rates are, where a task
    does not say. decay: how many times as large its weight decays are, which differ for one that is added to the
    gradient."""

    name: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    steps: float = 1.0
    decay: float = 1.0


@dataclass(frozen=True)
class RateSearch(Search):
    """A grid with rates "lr" in it. Where the best is at an end of all rates that were tried, the next one is tried
    too, twice or half as large, `FURTHER` times at most: so that no method is held back by the grid."""

    def holds(self, options: Mapping[str, Any]) -> bool:
        rates = list(self.space["lr"])  # type: ignore[arg-type]
        more = [rates[-1] * 2.0**n for n in range(1, FURTHER + 1)] + [rates[0] / 2.0**n for n in range(1, FURTHER + 1)]
        others = all(options[name] in each for name, each in self.space.items() if name != "lr")
        return set(options) == set(self.space) and others and options["lr"] in [*rates, *more]

    def propose(self, tried: Sequence[Row]) -> list[Options]:
        inside, rates = super().propose(tried), {row["options"]["lr"] for row in tried}
        if inside or len(rates) - len(set(self.space["lr"])) >= FURTHER:  # type: ignore[arg-type]
            return inside
        best = max(tried, key=lambda row: row["accuracy"][0])["options"]
        low, high = best["lr"] == min(rates), best["lr"] == max(rates)
        return [{**best, "lr": best["lr"] * (0.5 if low else 2.0)}] if low or high else []


def learners(figure: str, task: Task, opponents: Sequence[Opponent]) -> tuple[list[Learner], list[Search]]:
    """The runs on test data of every opponent, with the options that its search has chosen, and the searches."""
    runs, searches = list[Learner](), list[Search]()
    common = {"figure": figure, "task": task.name, "title": task.title, "seeds": 3, "at_end": len(task.lengths) > 1}
    for opponent in opponents:
        no_decay = task.decays and "weight_decay" not in methods.options(opponent.method)
        if opponent.name in task.without or no_decay:
            continue
        space = _space(task, opponent)
        middle = {name: values[len(values) // 2] for name, values in space.items()}
        own = {"method": opponent.method, "label": opponent.name, "options": {**opponent.options, **middle}}
        for length in task.lengths:
            run = Learner(**{**common, **own, **task.run, **length})
            search = RateSearch(replace(run, **task.search), space, together=1)
            found = settings(figure, {}, **search.template.config())
            if search not in searches:
                searches.append(search)
            runs.append(replace(run, options=found or run.options, chosen=bool(found)))
    return runs, searches


def _space(task: Task, opponent: Opponent) -> dict[str, Sequence[float]]:
    times = task.steps.get(opponent.method, opponent.steps)
    space: dict[str, Sequence[float]] = {"lr": tuple(times * rate for rate in task.rates)}
    if task.decays:
        space["weight_decay"] = tuple(opponent.decay * each for each in task.decays)
    return space


Table = tuple[str, list[str], list[list[str]]]
"""What the table shows, the names of its columns, and its rows."""


def tables(figure: Figure, results: Results) -> list[Table]:
    """Return, for each task of which something was measured, a row for each method and a column for each mark."""
    found = []
    for panel in figure.panels:
        runs = [run for run in figure.runs if run.panel == panel and results.of(run)]
        if runs:
            found.append(_table(f"{panel}: {figure.measured(panel)}", runs, results))
    return found


def _table(title: str, runs: Sequence[Learner], results: Results) -> Table:
    """Return the table of one task. Runs of different lengths have columns of their own, and each a rate of its own."""
    cells: dict[str, dict[int, str]] = {}
    for run in runs:
        cells.setdefault(run.name, {}).update(_cells(run, results))
    marks, timed = sorted({batch for each in cells.values() for batch in each}), bool(runs[0].timed)
    rows = []
    for name, of in cells.items():
        own = [run for run in runs if run.name == name]
        rows.append([name, _options(own), *(of.get(mark, "") for mark in marks)])
        if timed:
            rows[-1].append(_seconds(own[-1], results))
    return title, ["method", "chosen", *(f"{n:,} batches" for n in marks), *["seconds"] * timed], rows


def _cells(run: Learner, results: Results) -> dict[int, str]:
    """Return mean and standard deviation after each mark; instead, where some seeds have diverged before, how many."""
    rows, found = results.of(run)[: run.seeds], dict[int, list[float]]()
    for row in rows:
        for x, y in run.points(row, "batches"):
            found.setdefault(int(x), []).append(y)
    form = ".4g" if run.lower_is_better else ".4f"
    lost = f"{sum('diverged' in row for row in rows)} of {len(rows)} diverged"
    return {batch: words(values, form) if len(values) == len(rows) else lost for batch, values in found.items()}


def _options(runs: Sequence[Learner]) -> str:
    """Return what the search has chosen, for each length."""
    names = [name for name in ("lr", "weight_decay") if name in runs[0].options]
    each = [", ".join(f"{name} {run.options[name]:g}" for name in names) for run in runs]
    return each[0] if len(set(each)) == 1 else "; ".join(each)


def _seconds(run: Learner, results: Results) -> str:
    """Return the seconds of training, up to the end, the mean of seeds."""
    rows = [row for row in results.of(run)[: run.seeds] if "diverged" not in row and run.has_seconds(row)]
    return f"{fmean(row['points'][-1]['seconds'] for row in rows):.3g}" if rows else ""
