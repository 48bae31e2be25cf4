"""What the paper claims, what was found, and what judges share: the values of several runs beside each other.

A claim is made of statements, each with its own criterion and verdict:

    reproduced  the algorithm as the paper prints it shows what the paper says; ours may do better still
    exceeded    the printed algorithm does not show it, and ours does at least as well as the paper says
    differs     neither does, as where an order of methods is decided by tuning or by seeds; with the reason
    refuted     it is wrong; with the reason

A claim has the last of these that one of its statements has.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot
from statistics import mean
from typing import Any

from reproduction.results import Results, deviation, words
from reproduction.run import Run

VERDICTS = ("reproduced", "exceeded", "differs", "refuted")
"""From the one that agrees most with the paper to the one that agrees least."""
NOT_RUN = "not run"


@dataclass(frozen=True)
class Finding:
    """ours: the numbers, in words. spread: the largest standard deviation over seeds among them. because: the reason
    of a verdict that is not "reproduced". ValueError for an unknown verdict, or one that lacks its reason."""

    ours: str
    verdict: str
    because: str = ""
    spread: float | None = None

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"a verdict is one of {', '.join(VERDICTS)}, given {self.verdict!r}")
        if self.verdict in ("differs", "refuted") and not self.because:
            raise ValueError(f"the verdict {self.verdict!r} needs a reason")


@dataclass(frozen=True)
class Statement:
    """One thing that the paper says. criterion: what decides about it, in one sentence. judge: raises KeyError where a
    run that it needs has not been made."""

    text: str
    criterion: str
    judge: Callable[[Results], Finding]


def statement(text: str, criterion: str) -> Callable[[Callable[[Results], Finding]], Statement]:
    """Makes a statement of the function that judges it."""
    return lambda judge: Statement(text, criterion, judge)


@dataclass(frozen=True)
class Claim:
    """text: what the paper says, in one line. paper: its numbers."""

    id: str
    text: str
    paper: str
    statements: Sequence[Statement]


def judged(claim: Claim, results: Results, remedy: str) -> dict[str, Any]:
    """A row of `reproduction verify`: the claim's "verdict", and as "statements" what each of them says, its criterion,
    verdict, numbers ("ours"), "spread" and reason ("because"). remedy: the command that makes missing runs."""
    found = [_judged(each, results, remedy) for each in claim.statements]
    return {"claim": claim.id, "text": claim.text, "paper": claim.paper, "verdict": _of(found), "statements": found}


def _judged(statement: Statement, results: Results, remedy: str) -> dict[str, Any]:
    row: dict[str, Any] = {"text": statement.text, "criterion": statement.criterion}
    try:
        found = statement.judge(results)
    except KeyError:
        return {**row, "verdict": NOT_RUN, "ours": "", "spread": None, "because": f"make its runs with {remedy}"}
    return {**row, "verdict": found.verdict, "ours": found.ours, "spread": found.spread, "because": found.because}


def _of(statements: Sequence[Mapping[str, Any]]) -> str:
    """The verdict on a claim with these statements."""
    found = [each["verdict"] for each in statements]
    return NOT_RUN if NOT_RUN in found else max(found, key=VERDICTS.index)


def merged(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One row of several figures' on the same claim, with the statements of all."""
    statements = [each for row in rows for each in row["statements"]]
    return {**rows[0], "verdict": _of(statements), "statements": statements}


def counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many claims have each verdict; "not run" only if there are such.

    >>> counts([{"verdict": "exceeded"}, {"verdict": "differs"}, {"verdict": "differs"}])
    {'reproduced': 0, 'exceeded': 1, 'differs': 2, 'refuted': 0}
    """
    found = [row["verdict"] for row in rows]
    return {name: found.count(name) for name in (*VERDICTS, *([NOT_RUN] if NOT_RUN in found else []))}


def order(claim: str) -> tuple[str, int]:
    """C2 comes before C10.

    >>> sorted(["C10", "C2"], key=order)
    ['C2', 'C10']
    """
    return claim[:1], int(claim[1:])


@dataclass(frozen=True)
class Compared:
    """The accuracies of runs by name, one for each seed. about: what they have in common, such as the net."""

    about: str
    values: Mapping[str, list[float]]

    def __getitem__(self, name: str) -> float:
        """The mean over seeds."""
        return mean(self.values[name])

    def __str__(self) -> str:
        return f"{self.about}: " + ", ".join(f"{name} {words(values)}" for name, values in self.values.items())

    @property
    def spread(self) -> float:
        """The largest standard deviation over seeds."""
        return max(map(deviation, self.values.values()), default=0.0)

    def margin(self, one: str, other: str, least: float = 0.0) -> float:
        """Twice the standard error of the difference of two means over seeds, but not less than `least`.

        >>> round(Compared("net", {"adam": [0.4, 0.6], "sgd": [0.5, 0.5]}).margin("adam", "sgd"), 6)
        0.2
        """
        errors = (deviation(self.values[name]) / len(self.values[name]) ** 0.5 for name in (one, other))
        return max(least, 2 * hypot(*errors))

    def behind(self, one: str, others: Iterable[str], least: float = 0.0) -> list[str]:
        """The others of which `one` is behind by more than the margin."""
        return [each for each in others if self[one] < self[each] - self.margin(one, each, least)]

    def not_ahead(self, one: str, others: Iterable[str]) -> list[str]:
        """The others of which `one` is not ahead by more than the margin."""
        return [each for each in others if self[one] <= self[each] + self.margin(one, each)]


def compared(
    results: Results, runs: Iterable[Run], about: str, *, batch: int | None = None, epoch: int | None = None
) -> Compared:
    """What runs came to after a batch or an epoch (-1: the last). KeyError if one has not been made."""
    return Compared(about, {run.name: results.values(run, batch=batch, epoch=epoch) for run in runs})


def over(results: Results, runs: Iterable[Run], about: str, batches: Iterable[int]) -> Compared:
    """The mean over several batches, of every seed. KeyError if a run has not been made."""
    found, places = {}, list(batches)
    for run in runs:
        each = zip(*(results.values(run, batch=n) for n in places), strict=True)
        found[run.name] = [mean(values) for values in each]
    return Compared(about, found)


def finding(
    groups: Compared | Sequence[Compared],
    *,
    reproduced: bool,
    exceeded: bool = False,
    because: str = "",
    more: str = "",
) -> Finding:
    """The finding for these numbers. reproduced, exceeded: whether the criteria of these verdicts are met; with neither
    the verdict is "differs". because: its reason; not said where the verdict is "reproduced". more: said beside the
    numbers."""
    known = [groups] if isinstance(groups, Compared) else list(groups)
    verdict = "reproduced" if reproduced else "exceeded" if exceeded else "differs"
    text = "; ".join([*map(str, known), *([more] if more else [])])
    spread = max((group.spread for group in known), default=None)
    return Finding(text, verdict, "" if verdict == "reproduced" else because, spread)
