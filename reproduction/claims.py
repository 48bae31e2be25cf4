"""What the paper claims, what was found, and what judges share: the values of several runs beside each other.

A claim is made of statements, each with its own criterion and a verdict on the algorithm as the paper prints it:

    reproduced      it shows what the paper says
    undecided       an order of methods that the seeds do not decide
    not reproduced  it does not show it; with the reason
    refuted         the statement is wrong; with the reason

and, where ours was measured too, whether with our step that is reached, or more. A claim has the last verdict that one
of its statements has, and is reached if all of these are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot
from statistics import mean
from typing import Any

from reproduction.results import Results, deviation, words
from reproduction.run import Run

VERDICTS = ("reproduced", "undecided", "not reproduced", "refuted")
"""From the one that agrees most with the paper to the one that agrees least."""
REACHED = ("reached", "not reached")
NOT_RUN = "not run"


@dataclass(frozen=True)
class Finding:
    """numbers: in words. printed: the verdict on the algorithm as printed, "" if that was not measured. because: its
    reason where it is not "reproduced". spread: the largest standard deviation over seeds among the numbers. ours:
    whether our step reaches it, None if that was not measured."""

    numbers: str
    printed: str
    because: str = ""
    spread: float | None = None
    ours: bool | None = None


@dataclass(frozen=True)
class Statement:
    """One thing that the paper says. criterion: what decides about it, in one sentence. judge: raises KeyError where a
    run that it needs has not been made."""

    text: str
    criterion: str
    judge: Callable[[Results], Finding]


@dataclass(frozen=True)
class Claim:
    """text: what the paper says, in one line. paper: its numbers. note: said behind the text, by what was measured."""

    id: str
    text: str
    paper: str
    statements: Sequence[Statement]
    note: Callable[[Results], str] = lambda results: ""


def judged(claim: Claim, results: Results, remedy: str) -> dict[str, Any]:
    """Return the claim's verdict ("printed"), "reached" or "not reached" with our step ("ours"), and as "statements"
    what each of them says, its criterion, "printed", "ours", "numbers", "spread" and reason ("because"). remedy: the
    command that makes missing runs."""
    rows: list[dict[str, Any]] = []
    for each in claim.statements:
        try:
            found = each.judge(results)
        except KeyError:
            found = Finding("", NOT_RUN, f"make its runs with {remedy}")
        ours = "" if found.ours is None else REACHED[not found.ours]
        rows.append({"text": each.text, "criterion": each.criterion, **vars(found), "ours": ours})
    text = claim.text + claim.note(results)
    return {"claim": claim.id, "text": text, "paper": claim.paper, **_of(rows), "statements": rows}


def _of(statements: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the verdicts on a claim with these statements."""
    orders = {"printed": ("", *VERDICTS, NOT_RUN), "ours": ("", *REACHED)}
    return {name: max((each[name] for each in statements), key=order.index) for name, order in orders.items()}


def merged(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one row for those of several figures on the same claim, with the statements of all."""
    statements = [each for row in rows for each in row["statements"]]
    return {**rows[0], **_of(statements), "statements": statements}


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how many claims have each verdict, in words.

    >>> summary([{"printed": "undecided", "ours": "reached"}, {"printed": "refuted", "ours": ""}])
    'Of 2 claims as printed: 0 reproduced, 1 undecided, 0 not reproduced, 1 refuted. With our step: 1 of 1 reached.'
    """
    printed, ours = ([row[name] for row in rows] for name in ("printed", "ours"))
    names = [*VERDICTS, *([NOT_RUN] if NOT_RUN in printed else [])]
    counts = ", ".join(f"{printed.count(name)} {name}" for name in names)
    reached = f"{ours.count(REACHED[0])} of {sum(map(ours.count, REACHED))} reached"
    return f"Of {len(rows)} claims as printed: {counts}. With our step: {reached}."


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

    def near(self, one: str, others: Iterable[str]) -> bool:
        """Return whether there is one of the others from which `one` differs by no more than the margin."""
        return any(abs(self[one] - self[each]) <= self.margin(one, each) for each in others)

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
    printed: Callable[..., bool],
    ours: Callable[..., bool] | None = None,
    because: str | Callable[..., str] = "",
    undecided: Callable[..., bool] = lambda *found: False,
) -> Statement:
    """Return a statement about groups of runs. printed, ours: functions of the groups that decide whether the printed
    algorithm, and ours, meet the criterion. undecided: whether the printed one misses it by no more than the seeds
    explain. because: the reason, left out where the verdict is "reproduced"."""

    def judge(results: Results) -> Finding:
        found = groups(results)
        verdict = VERDICTS[0 if printed(*found) else 1 if undecided(*found) else 2]
        reason = because if isinstance(because, str) else because(*found)
        reason, spread = "" if verdict == VERDICTS[0] else reason, max(each.spread for each in found)
        return Finding("; ".join(map(str, found)), verdict, reason, spread, None if ours is None else ours(*found))

    return Statement(text, criterion, judge)
