"""`python -m reproduction figure`: a figure from scratch."""

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from altmin.cli import output
from altmin.cli.options import DataDir, Device, Threads
from reproduction.commands import options
from reproduction.figure import Figure, choose, load, make
from reproduction.results import RESULTS, Results, words
from reproduction.tables import markdown


def figure(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Of the figure; none lists them all.")] = None,
    only: options.Only = None,
    quick: Annotated[bool, typer.Option("--quick", help="A reduced version in two minutes on two cores.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Its folder [results; runs for --quick].")] = None,
    data_dir: DataDir = None,
    device: Device = "cpu",
    threads: Threads = None,
) -> None:
    """Make a figure from scratch, with its results and its picture. What was made before is not made again, so that it
    can be stopped and go on."""
    known = load()
    if name is None:
        print(listed(known))
        return
    chosen, place = choose(known, name), options.setting(device, threads, data_dir)
    folder, stem = out or (Path("runs") if quick else RESULTS), f"{name}-quick" if quick else name
    chosen = chosen.smaller() if quick else chosen
    some, rows = chosen.only(only), Results.read(folder / f"{stem}.jsonl")
    piped = not sys.stderr.isatty()
    with output.progress(f"figure {name}") as tick:
        left = make(some, rows, place, tick, lambda line: print(line, flush=True) if piped else None)
    for each in left:
        print(f"not made: {each}")
    print(f"{len(rows.rows)} rows in {rows.path}")
    if chosen.axes:
        from reproduction.draw import draw  # matplotlib takes a second to import

        print(summary(chosen, rows))
        picture = folder / f"{stem}.png"
        picture.write_bytes(draw(chosen, rows, "png", "reduced runs: a preview, not a result" if quick else ""))
        print(f"picture in {picture}")


def listed(figures: Mapping[str, Figure]) -> str:
    """Return a table of all figures with what they cost."""
    rows = []
    for name, figure in figures.items():
        claims = ", ".join(claim.id for claim in figure.claims)
        runs, searches = sum(run.seeds for run in figure.runs), sum(each.size for each in figure.searches)
        rows.append([name, figure.title, str(runs), str(searches), f"{figure.minutes:g}", claims])
    return markdown(["figure", "shows", "runs", "configurations to search", "minutes on an H200", "claims"], rows)


def summary(figure: Figure, results: Results) -> str:
    """Return a table of every curve at its end."""
    axis, rows = figure.axes[0], []
    failed = Counter((run.panel, run.name) for run in figure.runs for row in results.of(run) if "diverged" in row)
    for curve in figure.curves(results, axis):
        x, values = curve.points[-1]
        lost = failed[curve.panel, curve.name]
        value = words(values, ".4g") + (f", {lost} diverged" if lost else "")
        rows.append([curve.panel, curve.name, f"{x:g}", figure.measured(curve.panel), value])
    return markdown(["panel", "curve", f"at, in {axis}", "measured", "value"], rows)
