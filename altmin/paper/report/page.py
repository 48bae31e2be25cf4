"""The page: one HTML file that holds all it shows, its scripts and its style."""

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from altmin.common.optional import need
from altmin.paper.report import tables
from altmin.paper.report.plots import plot
from altmin.paper.reproduce.claims import order
from altmin.paper.reproduce.figure import Figure
from altmin.paper.reproduce.results import Results

KINDS = {"holds": "holds", "does not hold": "fails", "not run": "missing"}
"""What a verdict starts with, and how the style calls it."""


def page(figures: Mapping[str, Figure], results: Mapping[str, Results], verdicts: Sequence[Mapping[str, Any]]) -> str:
    """The page as text, which depends on its arguments alone. results: of every figure, by its name. verdicts: the rows
    of `altmin verify`. Text is escaped. Nothing in the page is loaded from elsewhere, which its content security policy
    makes sure of."""
    need("jinja2", "paper", "the report")
    need("plotly", "paper", "the report")
    from jinja2 import Environment, PackageLoader, StrictUndefined  # slow to import, and so is plotly
    from plotly.offline import get_plotlyjs

    files = resources.files("altmin.paper.report")
    environment = Environment(
        loader=PackageLoader("altmin.paper.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    ordered = sorted(figures, key=lambda name: _first_claim(figures[name]))
    sections = [section(figures[name], results[name]) for name in ordered]
    return environment.get_template("page.html").render(
        style=files.joinpath("page.css").read_text(),
        script=files.joinpath("page.js").read_text(),
        plotly=get_plotlyjs(),
        counts=counts(verdicts),
        claims=[{**row, "kind": kind(row["verdict"]), "figures": _figures_of(row, figures)} for row in verdicts],
        sections=sections,
        plots={each["name"]: each["plot"] for each in sections if each["plot"]["axes"]},
    )


def section(figure: Figure, results: Results) -> dict[str, Any]:
    """What the page says of a figure."""
    rows = tables.made(figure, results)
    return {
        "name": figure.name,
        "title": figure.title,
        "minutes": f"{figure.minutes:g}",
        "searched": bool(figure.searches),
        "made": len(rows),
        "planned": tables.planned(figure),
        "axis": figure.axes[0],
        "marks": figure.marks,
        "partial": tables.partial(rows),
        "plot": plot(figure, results),
        "ends": tables.ends(figure, results),
        "common": tables.common(figure),
        "runs": tables.runs(figure, results),
        "environments": tables.environments(rows),
        "samples": tables.samples(rows),
    }


def kind(verdict: str) -> str:
    """
    >>> kind("does not hold, because it is slow")
    'fails'
    """
    return next(name for start, name in KINDS.items() if verdict.startswith(start))


def counts(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """
    >>> counts([{"verdict": "holds"}, {"verdict": "holds"}, {"verdict": "not run: altmin reproduce fig2"}])
    'Of 3 claims 2 hold, 0 do not hold, 1 not run.'
    """
    found = [kind(row["verdict"]) for row in verdicts]
    words = {"holds": "hold", "fails": "do not hold", "missing": "not run"}
    return f"Of {len(found)} claims " + ", ".join(f"{found.count(name)} {word}" for name, word in words.items()) + "."


def _first_claim(figure: Figure) -> tuple[str, int]:
    """Figures stand in the order of their claims, those without one behind all others."""
    return min((order(claim.id) for claim in figure.claims), default=("~", 0))


def _figures_of(row: Mapping[str, Any], figures: Mapping[str, Figure]) -> list[str]:
    """The names of those that bear on a claim."""
    return [name for name, figure in figures.items() if row["claim"] in {claim.id for claim in figure.claims}]
