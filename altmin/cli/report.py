"""`altmin report`: claims and figures in one HTML file."""

from pathlib import Path
from typing import Annotated

import typer

from altmin.cli import output
from altmin.cli.reproduce import FIGURES, RESULTS, Figures, Store, existing
from altmin.cli.verify import verdicts
from altmin.paper.reproduce.figure import load
from altmin.paper.reproduce.results import Results


def report(
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page to write.")] = Path("report.html"),
    figures: Figures = FIGURES,
    results: Store = RESULTS,
) -> None:
    """Write a page of the paper's claims and figures: one HTML file, which works offline, on a phone and printed."""
    output.check_writable(out)
    known = load(figures)
    made = {name: Results.read(existing(results) / f"{name}.jsonl") for name in known}
    from altmin.paper.report.page import page  # matplotlib, whose colours the page shares, takes a second to import

    output.write(out, page(known, made, verdicts(figures, results)).encode())
