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
    """ours: the numbers, in words. spread: the largest standard deviation over seeds among them. because: the reason of
    a verdict that is not "reproduced"."""

    ours: str
    verdict: str
    because: str = ""
    spread: float | None = None


@dataclass(frozen=True)
class Statement:
    """One thing that the paper says. criterion: what decides about it, in one sentence. judge: raises KeyError where a
    run that it needs has not been made."""

    text: str
    criterion: str
    judge: Callable[[Results], Finding]


@dataclass(frozen=True)
class Claim:
    """text: what the paper says, in one line. paper: its numbers."""

    id: str
    text: str
    paper: str
    statements: Sequence[Statement]


def judged(claim: Claim, results: Results, remedy: str) -> dict[str, Any]:
    """Return the claim's "verdict", and as "statements" what each of them says, its criterion, verdict, numbers
    ("ours"), "spread" and reason ("because"). remedy: the command that makes missing runs."""
    rows: list[dict[str, Any]] = []
    for each in claim.statements:
        try:
            found = each.judge(results)
        except KeyError:
            found = Finding("", NOT_RUN, f"make its runs with {remedy}")
        rows.append({"text": each.text, "criterion": each.criterion, **vars(found)})
    return {"claim": claim.id, "text": claim.text, "paper": claim.paper, "verdict": _of(rows), "statements": rows}


def _of(statements: Sequence[Mapping[str, Any]]) -> str:
    """Return the verdict on a claim with these statements."""
    return max((each["verdict"] for each in statements), key=(*VERDICTS, NOT_RUN).index)


def merged(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one row for those of several figures on the same claim, with the statements of all."""
    statements = [each for row in rows for each in row["statements"]]
    return {**rows[0], "verdict": _of(statements), "statements": statements}


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how many claims have each verdict, in words.

    >>> summary([{"verdict": "exceeded"}, {"verdict": "differs"}, {"verdict": "differs"}])
    'Of 3 claims: 0 reproduced, 1 exceeded, 2 differs, 0 refuted.'
    """
    found = [row["verdict"] for row in rows]
    names = [*VERDICTS, *([NOT_RUN] if NOT_RUN in found else [])]
    return f"Of {len(rows)} claims: " + ", ".join(f"{found.count(name)} {name}" for name in names) + "."


@dataclass(frozen=True)
class Compared:
    """The accuracies of runs by name, one for each seed. The first run is the one that is judged; the others are its
    rivals. about: what they have in common, such as the net."""

    about: str
    values: Mapping[str, list[float]]

    def __getitem__(self, name: str) -> float:
        """Return the mean over seeds."""
        return mean(self.values[name])

    def __str__(self) -> str:
        return f"{self.about}: " + ", ".join(f"{name} {words(values)}" for name, values in self.values.items())

    @property
    def first(self) -> str:
        return next(iter(self.values))

    @property
    def rivals(self) -> list[str]:
        return [name for name in self.values if name != self.first]

    @property
    def spread(self) -> float:
        """The largest standard deviation over seeds."""
        return max(map(deviation, self.values.values()), default=0.0)

    def margin(self, one: str, other: str, least: float = 0.0) -> float:
        """Return twice the standard error of the difference of two means over seeds, but not less than `least`.

        >>> round(Compared("net", {"adam": [0.4, 0.6], "sgd": [0.5, 0.5]}).margin("adam", "sgd"), 6)
        0.2
        """
        errors = (deviation(self.values[name]) / len(self.values[name]) ** 0.5 for name in (one, other))
        return max(least, 2 * hypot(*errors))

    def behind(self, one: str, others: Iterable[str], least: float = 0.0) -> list[str]:
        """Return the others of which `one` is behind by more than the margin."""
        return [each for each in others if self[one] < self[each] - self.margin(one, each, least)]

    def not_ahead(self, one: str, others: Iterable[str]) -> list[str]:
        """Return the others of which `one` is not ahead by more than the margin."""
        return [each for each in others if self[one] <= self[each] + self.margin(one, each)]

    def level(self, least: float = 0.0) -> bool:
        """Return whether the first is not behind any rival by more than the margin."""
        return not self.behind(self.first, self.rivals, least)

    def ahead(self) -> bool:
        """Return whether the first is ahead of all rivals by more than the margin."""
        return not self.not_ahead(self.first, self.rivals)

    def above(self) -> bool:
        """Return whether the mean of the first is above those of all rivals."""
        return self[self.first] > max(map(self.__getitem__, self.rivals))


def compared(
    results: Results, runs: Iterable[Run], about: str, *, batch: int | None = None, epoch: int | None = None
) -> Compared:
    """Return what runs came to after a batch or an epoch (-1: the last). KeyError if one has not been made."""
    return Compared(about, {run.name: results.values(run, batch=batch, epoch=epoch) for run in runs})


def over(results: Results, runs: Iterable[Run], about: str, batches: Iterable[int]) -> Compared:
    """Return the mean over several batches, of every seed. KeyError if a run has not been made."""
    found, places = {}, list(batches)
    for run in runs:
        each = zip(*(results.values(run, batch=n) for n in places), strict=True)
        found[run.name] = [mean(values) for values in each]
    return Compared(about, found)


def statement(
    text: str,
    criterion: str,
    groups: Callable[[Results], Sequence[Compared]],
    reproduced: Callable[..., bool],
    exceeded: Callable[..., bool] = lambda *found: False,
    because: str | Callable[..., str] = "",
    more: Callable[..., str] = lambda *found: "",
) -> Statement:
    """Return a statement about groups of runs. reproduced, exceeded: functions of the groups that decide whether the
    criteria of these verdicts are met; with neither the verdict is "differs". because: its reason, left out where the
    verdict is "reproduced". more: said beside the numbers."""

    def judge(results: Results) -> Finding:
        found = groups(results)
        verdict = "reproduced" if reproduced(*found) else "exceeded" if exceeded(*found) else "differs"
        reason = because if isinstance(because, str) else because(*found)
        text = "; ".join(filter(None, [*map(str, found), more(*found)]))
        return Finding(text, verdict, "" if verdict == "reproduced" else reason, max(each.spread for each in found))

    return Statement(text, criterion, judge)
