"""A figure's curves as plotly draws them: plain data and layout, which become JSON in the page."""

import html
import math
from collections.abc import Sequence
from statistics import mean
from typing import Any

from altmin.paper.plot import LINES, MARKERS, style
from altmin.paper.reproduce.figure import Curve, Figure
from altmin.paper.reproduce.results import Results

SYMBOLS = dict(zip(MARKERS, ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x"), strict=True))
DASHES = dict(zip(LINES, ("solid", "dash", "dot", "dashdot"), strict=True))
GREY = "#888888"


def plot(figure: Figure, results: Results) -> dict[str, Any]:
    """What the page draws of a figure: its number of "panels", and for each axis along which there are points its
    "name", "data" (a line and a band for each curve, and marks) and "layout". Marks belong to the figure's first axis
    and are drawn against it alone."""
    figure, axes = figure.with_results(results), []
    for axis in figure.axes:
        if curves := figure.curves(results, axis):
            marks = _marks(figure) if axis == figure.axes[0] else []
            axes.append(
                {"name": axis, "data": _traces(figure, curves, axis) + marks, "layout": _layout(figure, axis, curves)}
            )
    return {"panels": len(figure.panels), "axes": axes}


def _traces(figure: Figure, curves: Sequence[Curve], axis: str) -> list[dict[str, Any]]:
    """Bands before lines, so that none lies over a line. Those of one name are one group, which the legend shows once
    and hides as a whole. By its uid plotly knows a trace when another axis is chosen: a hidden one stays hidden."""
    bands, lines, seen = [], [], set()
    for curve in curves:
        looks = style(figure.names.index(curve.name))
        shared = {
            "type": "scatter",
            "name": text(curve.name),
            "legendgroup": text(curve.name),
            **_place(figure, curve.panel),
        }
        bands.append(
            {**shared, **_band(curve), "fillcolor": pale(looks["color"]), "uid": f"band {curve.panel} {curve.name}"}
        )
        lines.append(
            {
                **shared,
                **_line(curve, axis),
                "showlegend": curve.name not in seen,
                "line": {"color": looks["color"], "dash": DASHES[looks["linestyle"]], "width": 2},
                "marker": {"symbol": SYMBOLS[looks["marker"]], "size": 7, "maxdisplayed": 9},
                "uid": f"line {curve.panel} {curve.name}",
            }
        )
        seen.add(curve.name)
    return bands + lines


def _line(curve: Curve, axis: str) -> dict[str, Any]:
    """The mean over seeds; hovering tells the smallest, the largest and the number of seeds too."""
    return {
        "x": [finite(x) for x, _ in curve.points],
        "y": [finite(mean(values)) for _, values in curve.points],
        "customdata": [[finite(min(values)), finite(max(values)), len(values)] for _, values in curve.points],
        "hovertemplate": f"<b>%{{fullData.name}}</b><br>%{{x:.4~g}} {text(axis)}: %{{y:.4~g}}<br>"
        "%{customdata[0]:.4~g} to %{customdata[1]:.4~g}, seeds: %{customdata[2]}<extra></extra>",
        "mode": "lines+markers",
    }


def _band(curve: Curve) -> dict[str, Any]:
    """From the smallest to the largest of all seeds, as a closed outline: there along the top, back along the
    bottom. What is not finite has no place on it."""
    edges = [(x, min(values), max(values)) for x, values in curve.points if all(map(math.isfinite, (x, *values)))]
    return {
        "x": [x for x, _, _ in edges] + [x for x, _, _ in reversed(edges)],
        "y": [high for _, _, high in edges] + [low for _, low, _ in reversed(edges)],
        "mode": "lines",
        "fill": "toself",
        "line": {"width": 0},
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _marks(figure: Figure) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for panel in figure.panels:
        marks = [mark for mark in figure.marks if mark.panel == panel]
        if marks:
            found.append(
                {
                    "type": "scatter",
                    "name": "the paper",
                    "legendgroup": " the paper",  # no curve's name starts with a space
                    "showlegend": not found,
                    "x": [mark.x for mark in marks],
                    "y": [mark.y for mark in marks],
                    "text": [text(f"{mark.source}: {mark.name}") for mark in marks],
                    "hovertemplate": "%{text}<extra></extra>",
                    "mode": "markers",
                    "marker": {"symbol": "star", "size": 14, "color": GREY, "line": {"width": 1, "color": "#ffffff"}},
                    "cliponaxis": False,
                    "uid": f"paper {panel}",
                    **_place(figure, panel),
                }
            )
    return found


def _layout(figure: Figure, axis: str, curves: Sequence[Curve]) -> dict[str, Any]:
    """An x and a y axis for each panel, with its title over them."""
    layout: dict[str, Any] = {"annotations": []}
    scale = {letter: "log" if letter in figure.log else "linear" for letter in "xy"}
    for n, panel in enumerate(figure.panels):
        x, y = _place(figure, panel).values()
        layout[f"xaxis{n + 1 if n else ''}"] = {
            "title": {"text": text(axis)},
            "type": scale["x"],
            **_ticks([x for curve in curves if curve.panel == panel for x, _ in curve.points], scale["x"]),
        }
        layout[f"yaxis{n + 1 if n else ''}"] = {
            "title": {"text": text(figure.measured(panel))},
            "type": scale["y"],
            **({} if figure.bottom is None else {"range": [figure.bottom, None], "autorange": "max"}),
        }
        layout["annotations"].append(
            {
                "text": f"<b>{text(panel)}</b>",
                **{"xref": f"{x} domain", "x": 0, "xanchor": "left"},
                **{"yref": f"{y} domain", "y": 1, "yanchor": "bottom"},
                "showarrow": False,
                "yshift": 4,
            }
        )
    return layout


def _place(figure: Figure, panel: str) -> dict[str, str]:
    """The axes of a panel by plotly's names: x and y, x2 and y2, and so on."""
    n = figure.panels.index(panel)
    return {"xaxis": f"x{n + 1 if n else ''}", "yaxis": f"y{n + 1 if n else ''}"}


def _ticks(places: Sequence[float], scale: str) -> dict[str, Any]:
    """A few places on a logarithmic scale are its ticks, and between few epochs there is none; else plotly chooses."""
    if scale == "log":
        return {"tickvals": sorted(set(places))} if len(set(places)) <= 10 else {}
    return {"dtick": 1} if places and max(places) <= 10 and all(x == int(x) for x in places) else {}


def pale(colour: str) -> str:
    """
    >>> pale("#0072B2")
    'rgba(0, 114, 178, 0.18)'
    """
    return f"rgba({int(colour[1:3], 16)}, {int(colour[3:5], 16)}, {int(colour[5:7], 16)}, 0.18)"


def finite(value: float) -> float | None:
    """The value; None, which JSON has, for a NaN or infinity, which it has not.

    >>> finite(0.5), finite(float("nan"))
    (0.5, None)
    """
    return value if math.isfinite(value) else None


def text(words: str) -> str:
    """As plotly shows it literally: of its own it takes HTML's tags and entities in any text.

    >>> text("<b>adam</b>")
    '&lt;b&gt;adam&lt;/b&gt;'
    """
    return html.escape(words, quote=False)
