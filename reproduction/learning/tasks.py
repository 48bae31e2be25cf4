"""Tasks on which methods are compared, and the choice of each method's rate by one protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reproduction.learning.learner import Learner
from reproduction.measurement import Row
from reproduction.search import Options, Search
from reproduction.settings import settings

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
    for opponent in (each for each in opponents if each.name not in task.without):
        space = _space(task, opponent)
        middle = {name: values[len(values) // 2] for name, values in space.items()}
        own = {"method": opponent.method, "label": opponent.name, "options": {**opponent.options, **middle}}
        for length in task.lengths:
            run = Learner(**{**common, **own, **task.run, **length})
            search = RateSearch(replace(run, **task.search), space, together=1)
            found = settings(figure, default={}, **search.template.config())
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
