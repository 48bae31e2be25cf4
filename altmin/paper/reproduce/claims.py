"""What the paper claims, what was found, and what judges share: the values of several runs beside each other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from altmin.paper.reproduce.results import Results, deviation, words
from altmin.paper.reproduce.run import Run


@dataclass(frozen=True)
class Finding:
    """ours: the numbers, in words. spread: the largest standard deviation over seeds among them. because: why a claim
    does not hold."""

    ours: str
    holds: bool
    spread: float | None = None
    because: str = ""


@dataclass(frozen=True)
class Claim:
    """paper: what it states, with its numbers. judge: raises KeyError where a run that it needs has not been made."""

    id: str
    text: str
    paper: str
    judge: Callable[[Results], Finding]


def claim(id: str, text: str, paper: str) -> Callable[[Callable[[Results], Finding]], Claim]:
    """Makes a claim of the function that judges it."""
    return lambda judge: Claim(id, text, paper, judge)


def judged(claim: Claim, results: Results, remedy: str) -> dict[str, object]:
    """A row of `altmin verify`. remedy: the command that makes the runs, for the verdict where they are missing."""
    row: dict[str, object] = {"claim": claim.id, "text": claim.text, "paper": claim.paper}
    try:
        found = claim.judge(results)
    except KeyError:
        return {**row, "ours": "", "spread": None, "verdict": f"not run: {remedy}"}
    verdict = "holds" if found.holds else f"does not hold, because {found.because}"
    return {**row, "ours": found.ours, "spread": found.spread, "verdict": verdict}


def merged(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One row of several figures' on the same claim: it holds if it does in all of them."""
    if len(rows) == 1:
        return rows[0]
    verdicts = list(dict.fromkeys(str(row["verdict"]) for row in rows if row["verdict"] != "holds"))
    spreads = [row["spread"] for row in rows if row["spread"] is not None]
    return {
        **rows[0],
        "ours": "; ".join(row["ours"] for row in rows if row["ours"]),
        "spread": max(spreads, default=None),
        "verdict": "; ".join(verdicts) or "holds",
    }


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


def compared(
    results: Results, runs: Iterable[Run], about: str, *, batch: int | None = None, epoch: int | None = None
) -> Compared:
    """What runs came to after a batch or an epoch (-1: the last). KeyError if one has not been made."""
    return Compared(about, {run.name: results.values(run, batch=batch, epoch=epoch) for run in runs})


def on_each_net(
    results: Results, runs: Mapping[tuple[str, str], Run], names: Iterable[str], epoch: int = -1
) -> list[Compared]:
    """What the runs of these names came to after an epoch, for each net. runs: as `runs_of` gives them."""
    nets = dict.fromkeys(net for net, _ in runs)
    return [compared(results, [runs[net, name] for name in names], net, epoch=epoch) for net in nets]


def over(results: Results, runs: Iterable[Run], about: str, batches: Iterable[int]) -> Compared:
    """The mean over several batches, of every seed. KeyError if a run has not been made."""
    found, places = {}, list(batches)
    for run in runs:
        each = zip(*(results.values(run, batch=n) for n in places), strict=True)
        found[run.name] = [mean(values) for values in each]
    return Compared(about, found)


def finding(groups: Iterable[Compared], against: Mapping[str, bool], more: str = "") -> Finding:
    """A claim holds if nothing speaks against it. against: in words, whether each thing that could does. more: said
    beside the numbers."""
    known = list(groups)
    reasons = [why for why, true in against.items() if true]
    text = "; ".join([*map(str, known), *([more] if more else [])])
    return Finding(text, not reasons, max((group.spread for group in known), default=None), " and ".join(reasons))
