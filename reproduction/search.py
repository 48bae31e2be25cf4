"""Settings of runs: configurations are proposed, trained on validation samples, stored, and the best ones taken."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from altmin.common.describe import plain
from altmin.common.optional import need
from reproduction.results import RESULTS, Results, Row, Setting, Tick
from reproduction.run import Run

Options = dict[str, Any]


@dataclass(frozen=True)
class Between:
    """Real numbers between two positive ones, drawn uniformly in their logarithm."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high < math.inf:
            raise ValueError(f"Between takes 0 < low < high, both finite, given {self.low} and {self.high}")

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


Space = Mapping[str, Between | Sequence[Any]]


@dataclass(frozen=True)
class Search:
    """Which options of a run are looked for, and where. Its configurations are rows: "config" of the run with the fixed
    options, "at_batch", "seeds", the "options" tried, their number as "trial", and the validation "accuracy" by seed.

    run: all else; its options outside the space are fixed. Where it has all those in the space, a Bayesian search tries
    these first. space: with sequences alone the search is their full grid; with a `Between` it is Bayesian, of `trials`
    configurations, by the tree-structured Parzen estimator. together: how many are proposed and trained at once, on a
    GPU as one ensemble. seeds: a configuration is judged by its mean accuracy over that many. at_batch: after this
    batch; at the end if None. A configuration that diverges counts as 0. paper: what the paper found, to be shown
    beside.
    """

    run: Run
    space: Space
    trials: int = 32
    together: int = 8
    seeds: int = 1
    at_batch: int | None = None
    paper: Mapping[str, float] = field(default_factory=dict)

    @property
    def bayesian(self) -> bool:
        return any(isinstance(each, Between) for each in self.space.values())

    @property
    def size(self) -> int:
        """Number of configurations that it tries."""
        return self.trials if self.bayesian else sum(1 for _ in self.grid())

    @property
    def start(self) -> Options:
        """The configuration that is tried first; empty if the run does not say."""
        known = {name: self.run.options[name] for name in self.space if name in self.run.options}
        return known if len(known) == len(self.space) else {}

    @property
    def template(self) -> Run:
        """The run as it is trained, without the options that are looked for."""
        fixed = {name: value for name, value in self.run.options.items() if name not in self.space}
        batches = () if self.at_batch is None else (self.at_batch,)
        return replace(self.run, options=fixed, part="validation", eval_batches=batches)

    def identity(self) -> Row:
        """Return what the rows of its configurations have in common."""
        return {"config": self.template.config(), "at_batch": self.at_batch, "seeds": list(range(self.seeds))}

    def holds(self, options: Mapping[str, Any]) -> bool:
        """Return whether a configuration is one of the space."""
        return set(options) == set(self.space) and all(options[name] in each for name, each in self.space.items())

    def tried(self, history: Results) -> list[Row]:
        """Return its configurations in a history, in their order."""
        own = self.identity()
        return [row for row in history.rows if judged_alike(row, own) and self.holds(row["options"])]

    def missing(self, history: Results) -> int:
        return max(0, self.size - len(self.tried(history)))

    def best(self, history: Results) -> Row | None:
        rows = self.tried(history)
        return best(rows) if rows else None

    def propose(self, tried: Sequence[Row]) -> list[Options]:
        """Return the configurations to train next, none if all are. They depend on the space and on what was tried
        alone, so that a search goes on after an interruption as it would have without."""
        count = min(self.together, self.size - len(tried))
        if self.bayesian:
            return _by_optuna(self, tried, count) if count > 0 else []
        known = [row["options"] for row in tried]
        return [point for point in self.grid() if point not in known][: self.together]

    def grid(self) -> Iterator[Options]:
        """Yield all points of a space of sequences."""
        values = [each for each in self.space.values() if not isinstance(each, Between)]
        return (dict(zip(self.space, point, strict=True)) for point in product(*values))


def search(searches: Sequence[Search], history: Results, setting: Setting, tick: Tick) -> list[str]:
    """Try what is missing of searches, adding each proposal to the history. Return what could not be tried, and why."""
    lacking = [(each, each.run.lacking(setting)) for each in searches]
    able = [each for each, why in lacking if not why]
    done, total = 0, sum(each.missing(history) for each in able)
    for each in able:
        while proposed := each.propose(tried := each.tried(history)):

            def shown(n: int, of: int, text: str, each: Search = each, a: int = done, b: int = len(proposed)) -> None:
                tick(round(1000 * (a + b * n / of)), 1000 * total, f"{each.run.panel}, {each.run.method}")

            history.add(_train(each, proposed, len(tried), setting, shown))
            done += len(proposed)
    return [f"{each.run.panel}, {each.run.name}: {why}" for each, why in lacking if why]


def _train(search: Search, proposed: Sequence[Options], first: int, setting: Setting, tick: Tick) -> list[Row]:
    template, found = search.template, []
    jobs = [({**template.options, **options}, seed) for options in proposed for seed in range(search.seeds)]
    made = iter(template.make_all(jobs, setting, tick))
    for trial, options in enumerate(proposed, first):
        rows = [next(made) for _ in range(search.seeds)]
        scores = {
            "accuracy": [search.run.score(row, search.at_batch) for row in rows],
            "diverged": sum("diverged" in row for row in rows),
        }
        about = {"environment": dict(setting.environment), **{name: rows[0][name] for name in ("data", "rows")}}
        found.append({**search.identity(), "trial": trial, "options": options, **scores, **about})
    return found


def _by_optuna(search: Search, tried: Sequence[Row], count: int) -> list[Options]:
    """Return proposals of optuna's TPE. Its state is what was tried, and its seed the number of that."""
    need("optuna", "dev", "a Bayesian search")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.FloatDistribution(each.low, each.high, log=True)
        if isinstance(each, Between)
        else optuna.distributions.CategoricalDistribution(list(each))
        for name, each in search.space.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=len(tried), multivariate=True, constant_liar=True)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for row in tried:
            value = mean(row["accuracy"])
            study.add_trial(optuna.trial.create_trial(params=row["options"], distributions=space, value=value))
        if not tried and search.start:
            study.enqueue_trial(search.start)
        return [dict(study.ask(space).params) for _ in range(count)]


def history(figure: str) -> Path:
    """Return the file of all configurations that were tried for a figure."""
    return RESULTS / "search" / f"{figure}.jsonl"


def best(rows: Sequence[Row]) -> Row:
    """Return the row of the best mean over seeds, the first of equal ones."""
    return max(rows, key=lambda row: mean(row["accuracy"]))


def judged_alike(a: Row, b: Row) -> bool:
    """Return whether two configurations were trained and judged in the same way, so that they can be compared."""
    return all(a[name] == b[name] for name in ("config", "at_batch", "seeds"))


def settings(figure: str, default: Mapping[str, Any], **config: Any) -> dict[str, Any]:
    """Return the options with the best validation accuracy that a figure's search has found for runs of this config;
    `default` where nothing was searched. Only what was judged as the last row was counts: a search of other epochs made
    before is out of date."""
    path = history(figure)
    known = _read(path, path.stat().st_mtime_ns) if path.exists() else []
    rows = [row for row in known if all(row["config"].get(name) == value for name, value in config.items())]
    if not rows:
        return dict(default)
    chosen = best([row for row in rows if judged_alike(row, rows[-1])])
    return {**chosen["config"]["options"], **chosen["options"]}


@lru_cache(maxsize=4)
def _read(path: Path, modified: int) -> list[Row]:
    """Return the rows of a file, once for all runs of a figure."""
    return Results.read(path).rows


@dataclass(frozen=True)
class Entry:
    """A method of a figure that compares methods on nets. options: those before a search, which alone are fixed if they
    are not in its space. run: what its runs have of their own, such as their batch size. search: what its searches have
    of their own, as in `Search`, and as "run" what the runs have that they train. paper: by net, the learning rate that
    the paper found: shown beside what a search finds, or, without a space, the rate of the run."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    space: Space = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, float] = field(default_factory=dict)

    def on(self, figure: str, model: str, common: Mapping[str, Any]) -> Run:
        """Return its run on a net, with the options that a search has chosen."""
        run = Run(method=self.method, model=model, **{**common, **self.run})
        if not self.space:
            return replace(run, options={**self.options, **self._paper(model)})
        fixed = plain({name: value for name, value in self.options.items() if name not in self.space})
        same = {name: getattr(run, name) for name in ("method", "model", "data", "freeze_first", "schedule")}
        return replace(run, options=settings(figure, self.options, **same, options=fixed))

    def searched(self, run: Run) -> Search:
        """Return the search for the options of its run on a net."""
        given = dict(self.search)
        trained = replace(run, options=self.options, **given.pop("run", {}))
        return Search(trained, self.space, paper=self._paper(run.model), **given)

    def _paper(self, model: str) -> dict[str, float]:
        return {"lr": self.paper[model]} if model in self.paper else {}


def runs_of(
    figure: str, entries: Sequence[Entry], models: Sequence[str], panel: str = "", **common: Any
) -> tuple[dict[tuple[str, str], Run], list[Search]]:
    """Return the runs of every entry on every net by (net, name of the run), and the searches of those that have a
    space. panel: said behind data and net in the titles of their panels."""
    made = [(entry, entry.on(figure, model, common)) for model in models for entry in entries]
    if panel:
        made = [(entry, replace(run, title=f"{run.panel}, {panel}")) for entry, run in made]
    searches = [entry.searched(run) for entry, run in made if entry.space]
    return {(run.model, run.name): run for _, run in made}, searches
