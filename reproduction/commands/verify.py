"""`python -m reproduction verify`: the paper's claims beside what was found."""

from pathlib import Path
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from altmin.cli import options, output
from reproduction.claims import counts, judged, merged, order
from reproduction.commands.figure import Figures, Store, existing
from reproduction.figure import load
from reproduction.folders import FIGURES, RESULTS
from reproduction.results import Results

STYLES = {
    "reproduced": "bold green",
    "exceeded": "bold cyan",
    "differs": "bold yellow",
    "refuted": "bold magenta",
    "not run": "dim",
}


def verify(figures: Figures = FIGURES, results: Store = RESULTS, json_file: options.Json = None) -> None:
    """Print the paper's claims: what it states, what the full runs found, the criterion of each statement and its
    verdict: reproduced, exceeded, differs or refuted."""
    output.check_writable(json_file)
    rows = verdicts(figures, existing(results))
    console = output.console()
    for row in rows:
        console.print(shown(row))
    console.print(f"\n{summary(rows)}", soft_wrap=True)
    output.write_json(json_file, rows)


def shown(row: dict[str, Any]) -> Group:
    """A claim, and below it its statements."""
    head = Text.assemble((row["claim"], "bold"), f"  {row['text']} ({row['paper']}): ", _styled(row["verdict"]))
    parts: list[Any] = [Text(), head]
    for each in row["statements"]:
        lines = [Text.assemble(_styled(each["verdict"]), f"  {each['text']}")]
        lines += [Text(f"{name}: {each[key]}") for name, key in WORDS.items() if each[key]]
        parts += [Padding(lines[0], (0, 0, 0, 4)), *(Padding(line, (0, 0, 0, 8)) for line in lines[1:])]
    return Group(*parts)


WORDS = {"criterion": "criterion", "found": "ours", "because": "because"}


def summary(rows: list[dict[str, Any]]) -> str:
    """How many claims have each verdict, in words."""
    return f"Of {len(rows)} claims: " + ", ".join(f"{number} {name}" for name, number in counts(rows).items()) + "."


def verdicts(figures: Path, results: Path) -> list[dict[str, Any]]:
    """A row for each claim, in their order; one on which several figures bear has what all of them found."""
    found: dict[str, list[dict[str, Any]]] = {}
    for figure in load(figures).values():
        made = Results.read(results / f"{figure.name}.jsonl")
        for claim in figure.claims:
            row = judged(claim, made, f"python -m reproduction figure {figure.name}")
            found.setdefault(claim.id, []).append(row)
    return [merged(found[claim]) for claim in sorted(found, key=order)]


def _styled(verdict: str) -> tuple[str, str]:
    return verdict, STYLES[verdict]
