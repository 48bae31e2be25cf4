"""`python -m reproduction report`: claims and figures in one HTML file."""

from pathlib import Path
from typing import Annotated

import typer

from altmin.cli import output
from reproduction.commands.figure import FIGURES, RESULTS, Figures, Store, existing
from reproduction.commands.verify import verdicts
from reproduction.figure import load
from reproduction.results import Results


def report(
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page to write.")] = Path("report.html"),
    figures: Figures = FIGURES,
    results: Store = RESULTS,
) -> None:
    """Write a page of the paper's claims and figures: one HTML file, which works offline, on a phone and printed."""
    output.check_writable(out)
    known = load(figures)
    made = {name: Results.read(existing(results) / f"{name}.jsonl") for name in known}
    from reproduction.report.page import page  # matplotlib, whose colours the page shares, takes a second to import

    output.write(out, page(known, made, verdicts(figures, results)).encode())
