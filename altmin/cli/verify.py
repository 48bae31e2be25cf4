"""`altmin verify`: the paper's claims beside what was found."""

from pathlib import Path
from typing import Any

from rich.table import Table

from altmin.cli import options, output
from altmin.cli.reproduce import Figures, Store, existing
from altmin.paper.reproduce.claims import judged, merged, order
from altmin.paper.reproduce.figure import load
from altmin.paper.reproduce.folders import FIGURES, RESULTS
from altmin.paper.reproduce.results import Results


def verify(figures: Figures = FIGURES, results: Store = RESULTS, json_file: options.Json = None) -> None:
    """Print the table of the paper's claims: what it states, what the full runs found, and whether it holds."""
    output.check_writable(json_file)
    rows = verdicts(figures, existing(results))
    table = Table("claim", "the paper", "ours", "verdict", header_style="bold")
    for row in rows:
        table.add_row(row["claim"], f"{row['text']}: {row['paper']}", row["ours"], row["verdict"])
    output.console().print(table)
    output.write_json(json_file, rows)


def verdicts(figures: Path, results: Path) -> list[dict[str, Any]]:
    """A row for each claim, in their order; one on which several figures bear has what all of them found."""
    found: dict[str, list[dict[str, Any]]] = {}
    for figure in load(figures).values():
        made = Results.read(results / f"{figure.name}.jsonl")
        for claim in figure.claims:
            row = judged(claim, made, f"altmin reproduce {figure.name}")
            found.setdefault(claim.id, []).append(row)
    return [merged(found[claim]) for claim in sorted(found, key=order)]
