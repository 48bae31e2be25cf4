"""Looking for options of a run on validation samples: configurations are proposed, trained some at once, and kept."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from statistics import mean
from typing import Any

from altmin.common.errors import demand
from altmin.common.optional import need
from reproduction.measurement import Row, Setting, Tick
from reproduction.run import Run
from reproduction.settings import History, best, judged_alike

Options = dict[str, Any]


@dataclass(frozen=True)
class Between:
    """Real numbers between two positive ones, which are drawn uniformly in their logarithm."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high < math.inf:
            raise ValueError(f"Between takes 0 < low < high, both finite, given {self.low} and {self.high}")

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Search:
    """Which options of a run are looked for, and where.

    run: all else; those of its options that are not in the space are fixed. Where it has all that are in the space,
    a Bayesian search tries these first. It is evaluated on validation samples, whatever its part and its seeds.
    space: with sequences alone the search is their full grid; with a `Between` it is Bayesian, of `trials`
    configurations, by the tree-structured Parzen estimator. together: how many are proposed, trained and kept at once,
    on a GPU as one ensemble. seeds: each configuration is evaluated by its mean accuracy over that many seeds, counted
    from 0. at_batch: accuracy is that after this batch; at the end if None. A configuration that diverges counts as 0.
    paper: what the paper found, to be shown beside.
    """

    run: Run
    space: Mapping[str, Between | Sequence[Any]]
    trials: int = 32
    together: int = 8
    seeds: int = 1
    at_batch: int | None = None
    paper: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("trials", "together", "seeds"):
            demand("Search", name, getattr(self, name), 1, whole=True)
        if not self.space or not all(isinstance(each, Between) or len(each) for each in self.space.values()):
            raise ValueError(f"the space of a Search has at least one option and no empty list, given {self.space}")
        if self.bayesian and self.start and not self.holds(self.start):
            raise ValueError(f"{self.start}, which a search is to try first, is not in its space {self.space}")

    @property
    def bayesian(self) -> bool:
        return any(isinstance(each, Between) for each in self.space.values())

    @property
    def size(self) -> int:
        """How many configurations it tries."""
        return self.trials if self.bayesian else sum(1 for _ in self.grid())

    @property
    def start(self) -> Options:
        """What is tried first; empty if the run does not say."""
        known = {name: self.run.options[name] for name in self.space if name in self.run.options}
        return known if len(known) == len(self.space) else {}

    @property
    def template(self) -> Run:
        """The run as it is trained, without the options that are looked for."""
        fixed = {name: value for name, value in self.run.options.items() if name not in self.space}
        batches = () if self.at_batch is None else (self.at_batch,)
        return replace(self.run, options=fixed, part="validation", eval_batches=batches)

    def identity(self) -> Row:
        """What the rows of its configurations have in common."""
        return {"config": self.template.config(), "at_batch": self.at_batch, "seeds": list(range(self.seeds))}

    def holds(self, options: Mapping[str, Any]) -> bool:
        """Whether a configuration is one of the space."""
        return set(options) == set(self.space) and all(options[name] in each for name, each in self.space.items())

    def tried(self, history: History) -> list[Row]:
        """Its configurations in a history, in their order."""
        own = self.identity()
        return [row for row in history.rows if judged_alike(row, own) and self.holds(row["options"])]

    def missing(self, history: History) -> int:
        return max(0, self.size - len(self.tried(history)))

    def best(self, history: History) -> Row | None:
        rows = self.tried(history)
        return best(rows) if rows else None

    def propose(self, tried: Sequence[Row]) -> list[Options]:
        """The configurations to train next, none if all are. They depend on the space and on what was tried alone, so
        that a search goes on after an interruption as it would have without."""
        count = min(self.together, self.size - len(tried))
        if self.bayesian:
            return _by_optuna(self, tried, count) if count > 0 else []
        known = [row["options"] for row in tried]
        return [point for point in self.grid() if point not in known][: self.together]

    def grid(self) -> Iterator[Options]:
        """All points of a space of sequences, each once."""
        values = [dict.fromkeys(each) for each in self.space.values() if not isinstance(each, Between)]
        return (dict(zip(self.space, point, strict=True)) for point in product(*values))


def search(searches: Sequence[Search], history: History, setting: Setting, tick: Tick) -> list[str]:
    """Tries what is missing of searches, and adds it to the history as soon as a proposal is trained. Returns what
    could not be tried here, and why."""
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
    template = search.template
    jobs = [({**template.options, **options}, seed) for options in proposed for seed in range(search.seeds)]
    made = iter(template.make_all(jobs, setting, tick))
    found = []
    for trial, options in enumerate(proposed, first):
        rows = [next(made) for _ in range(search.seeds)]
        found.append(
            {
                **search.identity(),
                "trial": trial,
                "options": options,
                "accuracy": [search.run.score(row, search.at_batch) for row in rows],
                "diverged": sum("diverged" in row for row in rows),
                "environment": dict(setting.environment),
                **{name: rows[0][name] for name in ("data", "rows")},
            }
        )
    return found


def _by_optuna(search: Search, tried: Sequence[Row], count: int) -> list[Options]:
    """Proposals of optuna's TPE. Its state is what was tried, and its seed the number of that."""
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
