"""`python -m reproduction report`: claims and figures in one HTML file."""

from pathlib import Path
from typing import Annotated

import typer

from altmin.cli import output
from reproduction.figure import load, verdicts
from reproduction.report import page


def report(
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page to write.")] = Path("report.html"),
) -> None:
    """Write a page of the paper's claims and figures from the committed results: one HTML file, which works offline."""
    output.check_writable(out)
    figures = load()
    out.write_text(page(figures, verdicts(figures)))
    print(f"wrote {out}")
