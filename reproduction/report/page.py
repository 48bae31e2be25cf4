"""The page: one HTML file that holds all it shows, its script and its style."""

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from altmin.common.optional import need
from reproduction.claims import counts, order
from reproduction.figure import Figure
from reproduction.report import tables
from reproduction.report.plots import plot, stated
from reproduction.results import Results


def page(figures: Mapping[str, Figure], results: Mapping[str, Results], verdicts: Sequence[Mapping[str, Any]]) -> str:
    """The page as text, which depends on its arguments alone. results: of every figure, by its name. verdicts: the rows
    of `verify`. Text is escaped. Nothing in the page is loaded from elsewhere, which its content security policy
    makes sure of."""
    need("jinja2", "dev", "the report")
    from jinja2 import Environment, PackageLoader, StrictUndefined  # slow to import

    files = resources.files("reproduction.report")
    environment = Environment(
        loader=PackageLoader("reproduction.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    ordered = sorted(figures, key=lambda name: _first_claim(figures[name]))
    sections = [section(figures[name], results[name]) for name in ordered]
    return environment.get_template("page.html").render(
        style=files.joinpath("page.css").read_text(),
        script=files.joinpath("page.js").read_text(),
        counts=counts(verdicts),
        claims=[{**row, "figures": _figures_of(row, figures)} for row in verdicts],
        sections=sections,
        plots={each["name"]: each["plot"] for each in sections if each["plot"]["axes"]},
    )


def section(figure: Figure, results: Results) -> dict[str, Any]:
    """What the page says of a figure."""
    rows, drawn = tables.made(figure, results), plot(figure, results)
    titles = {panel["title"] for panel in drawn["panels"]}
    return {
        "name": figure.name,
        "title": figure.title,
        "minutes": f"{figure.minutes:g}",
        "searched": bool(figure.searches),
        "made": len(rows),
        "planned": tables.planned(figure),
        "axis": figure.axes[0],
        "marks": [mark for mark in figure.marks if drawn["marks"] and mark.panel in titles],
        "stated": "what the paper states" if stated(figure) == "the paper" else stated(figure),
        "partial": tables.partial(rows),
        "plot": drawn,
        "ends": tables.ends(figure, results),
        "common": tables.common(figure),
        "runs": tables.runs(figure, results),
        "environments": tables.environments(rows),
        "samples": tables.samples(rows),
    }


def _first_claim(figure: Figure) -> tuple[str, int]:
    """Figures stand in the order of their claims, those without one behind all others."""
    return min((order(claim.id) for claim in figure.claims), default=("~", 0))


def _figures_of(row: Mapping[str, Any], figures: Mapping[str, Figure]) -> list[str]:
    """The names of those that bear on a claim."""
    return [name for name, figure in figures.items() if row["claim"] in {claim.id for claim in figure.claims}]
