"""`python -m reproduction figure`: a figure of the paper from scratch."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from altmin.cli import options, output
from reproduction import measurements
from reproduction.figure import Figure, choose, load, make
from reproduction.folders import FIGURES, RESULTS
from reproduction.measurement import Setting
from reproduction.results import Results, words

Figures = Annotated[
    Path, typer.Option(metavar="DIR", help="Where the figures are declared: Python files, which are executed.")
]
Store = Annotated[Path, typer.Option(metavar="DIR", help="Where the results of full runs are kept.")]


ONLY = "Some of its runs alone, by words of each: a model, a method or a curve, as lenet5/adam,mlp-2x100."


@dataclass(frozen=True, kw_only=True)
class OfFigures:
    """What `reproduce` and `search` have in common."""

    figure: Annotated[str | None, typer.Argument(metavar="FIGURE", help="Its name; none lists them all.")] = None
    only: Annotated[str | None, typer.Option(metavar="WORD/WORD,...", help=ONLY)] = None
    figures: Figures = FIGURES
    results: Store = RESULTS
    data_dir: options.DataDir = None
    device: options.Device = "cpu"
    threads: options.Threads = None


@dataclass(frozen=True, kw_only=True)
class FigureOptions(OfFigures):
    quick: Annotated[bool, typer.Option("--quick", help="A reduced version in two minutes on two cores.")] = False
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where --quick leaves results and picture.")] = Path("runs")


@options.command(FigureOptions)
def figure(given: FigureOptions) -> None:
    """Make a figure of the paper from scratch, with its results and its picture. What was made before is kept, so that
    it can be stopped and go on."""
    known, figure = load(given.figures), given.figure
    if given.figures == FIGURES:
        known |= measurements.figures()
    if figure is None:
        output.console().print(listed(known))
        return
    chosen = choose(known, figure)
    place = options.prepare(given.device, given.threads)
    folder = given.out if given.quick else given.results
    chosen, name = (chosen.smaller(), f"{figure}-quick") if given.quick else (chosen, figure)
    some = chosen.only(given.only)
    rows, picture = Results.read(folder / f"{name}.jsonl"), folder / f"{name}.png"
    folder.mkdir(parents=True, exist_ok=True)
    output.check_writable(folder / f"{name}.jsonl", picture=picture)
    with output.progress(f"reproduce {figure}") as tick:
        left = make(some, rows, Setting(place, given.data_dir, output.environment(place)), tick)
    for each in left:
        output.console().print(f"not made: {each}", markup=False)
    output.console().print(f"{len(rows.rows)} rows in {folder / f'{name}.jsonl'}")
    if not chosen.axes:
        return
    output.console().print(summary(chosen, rows))
    from reproduction.draw import draw  # matplotlib takes a second to import

    output.write(picture, draw(chosen, rows, "png", "reduced runs: a preview, not a result" if given.quick else ""))
    output.console().print(f"picture in {picture}")


def existing(results: Path) -> Path:
    """The folder of results. ValueError if one was given that is not there; the default is made with the first
    result."""
    if results != RESULTS and not results.is_dir():
        raise ValueError(f"there is no folder {results} of results; `python -m reproduction figure FIGURE` makes them")
    return results


def listed(figures: Mapping[str, Figure]) -> Table:
    """All figures with what they cost."""
    table = Table("figure", "shows", "runs", "minutes on an H200", "claims", header_style="bold")
    for name, figure in figures.items():
        runs = sum(run.seeds for run in figure.runs)
        claims = ", ".join(claim.id for claim in figure.claims)
        table.add_row(name, figure.title, str(runs), f"{figure.minutes:g}", claims)
    return table


def summary(figure: Figure, results: Results) -> Table:
    """Every curve at its end."""
    axis, measures = figure.axes[0], {figure.measured(panel) for panel in figure.panels}
    head = figure.measure if measures == {figure.measure} else "measured"
    table = Table("panel", "curve", f"at, in {axis}", head, header_style="bold")
    failed = Counter((run.panel, run.name) for run in figure.runs for row in results.of(run) if "diverged" in row)
    for curve in figure.curves(results, axis):
        x, values = curve.points[-1]
        lost = failed[curve.panel, curve.name]
        measure = figure.measured(curve.panel)
        value = words(values, ".4g") + f", {measure}" if head == "measured" else words(values)
        table.add_row(curve.panel, curve.name, f"{x:g}", value + (f", {lost} diverged" if lost else ""))
    return table
