"""A figure's curves as the page draws them: plain data, which become JSON in it."""

import math
from collections.abc import Sequence
from statistics import mean
from typing import Any

from altmin.cli.plot import LINES, MARKERS
from reproduction.figure import Curve, Figure
from reproduction.results import Results

SHAPES = dict(zip(MARKERS, ("circle", "square", "up", "diamond", "down", "plus", "cross"), strict=True))
DASHES = dict(zip(LINES, ("", "7 4", "2 3", "8 3 2 3"), strict=True))


def plot(figure: Figure, results: Results) -> dict[str, Any]:
    """What the page draws of a figure, with numbers of five digits and nothing said twice:

    axes    the names of those along which there are points
    panels  title, measure, and the scales "x" and "y": linear, log or logit
    bottom  where the vertical axis starts, or None
    looks   name, colour, marker and dash of curves; the same in all panels
    places  lists of where points lie along an axis
    curves  panel and look by number, and series: "at" has for each axis the number of its places, None if the
            series has no points along it; mean, low and high over seeds, the latter two only where there are
            several; seeds, one number if it is the same at all points
    marks   panel, place along the first axis, value and text of what the paper states; they are drawn against that
            axis alone
    stated  what marks are called
    """
    figure = figure.with_results(results)
    along = {axis: curves for axis in figure.axes if (curves := figure.curves(results, axis))}
    looks = [name for name in figure.names if any(curve.name == name for each in along.values() for curve in each)]
    places: list[list[float | None]] = []
    return {
        "axes": list(along),
        "panels": [_panel(figure, panel) for panel in figure.panels],
        "bottom": figure.bottom,
        "looks": [_look(figure, name) for name in looks],
        "curves": _curves(figure, list(along.values()), looks, places),
        "places": places,
        "marks": _marks(figure) if figure.axes[0] in along else [],
        "stated": stated(figure),
    }


def stated(figure: Figure) -> str:
    """Whose values the marks are, as the legend calls them."""
    return "the paper" if {mark.source for mark in figure.marks} <= {"paper"} else "published values"


def _panel(figure: Figure, panel: str) -> dict[str, str]:
    scales = {letter: figure.scale(panel, letter) for letter in "xy"}
    return {"title": panel, "measure": figure.measured(panel), **scales}


def _look(figure: Figure, name: str) -> dict[str, str]:
    looks = figure.looks(name)
    colour, marker, dash = looks["color"], SHAPES[looks["marker"]], DASHES[looks["linestyle"]]
    return {"name": name, "colour": colour, "marker": marker, "dash": dash}


def _curves(
    figure: Figure, along: Sequence[Sequence[Curve]], looks: Sequence[str], places: list[list[float | None]]
) -> list[dict[str, Any]]:
    """along: the curves of each axis. Adds to the places what is not among them."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for axis, curves in enumerate(along):
        for curve in curves:
            where, values = [short(x) for x, _ in curve.points], _values(curve)
            if where not in places:
                places.append(where)
            series = found.setdefault((curve.panel, curve.name), [])
            same = next((each for each in series if values.items() <= each.items()), None)
            if same is None:
                same = {"at": [None] * len(along), **values}
                series.append(same)
            same["at"][axis] = places.index(where)
    return [
        {"panel": figure.panels.index(panel), "look": looks.index(name), "series": series}
        for (panel, name), series in found.items()
    ]


def _values(curve: Curve) -> dict[str, Any]:
    """What the seeds came to at each point."""
    values = [values for _, values in curve.points]
    seeds = [len(each) for each in values]
    found: dict[str, Any] = {"mean": [short(mean(each)) for each in values]}
    if max(seeds) > 1:
        found |= {"low": [_extreme(min, each) for each in values], "high": [_extreme(max, each) for each in values]}
    return {**found, "seeds": seeds[0] if len(set(seeds)) == 1 else seeds}


def _extreme(choose: Any, values: Sequence[float]) -> float | None:
    """None where one is not finite: such a point has no place on a band."""
    return short(choose(values)) if all(map(math.isfinite, values)) else None


def _marks(figure: Figure) -> list[dict[str, Any]]:
    return [
        {
            "panel": figure.panels.index(mark.panel),
            "x": mark.x,
            "y": mark.y,
            "text": f"{mark.source}: {mark.name}",
        }
        for mark in figure.marks
        if mark.panel in figure.panels
    ]


def short(value: float) -> float | None:
    """The value with five digits, a whole number with all; None, which JSON has, for a NaN or infinity, which it has
    not.

    >>> short(1 / 3), short(0.5), short(117185.0), short(float("nan"))
    (0.33333, 0.5, 117185, None)
    """
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) else float(f"{value:.5g}")
