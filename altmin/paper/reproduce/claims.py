"""What the paper claims, and what was found."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from altmin.paper.reproduce.results import Results


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
    judge: Callable[["Results"], Finding]


def claim(id: str, text: str, paper: str) -> Callable[[Callable[["Results"], Finding]], Claim]:
    """Makes a claim of the function that judges it."""
    return lambda judge: Claim(id, text, paper, judge)


def judged(claim: Claim, results: "Results", remedy: str) -> dict[str, object]:
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
