"""A figure's picture from its results alone: mean and spread over seeds, the paper's stated values as marks."""

from collections.abc import Sequence
from statistics import mean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from altmin.plot import content, mark, style, tidy
from altmin.reproduce.figure import Curve, Figure
from altmin.reproduce.results import Results

ROW = 3
"""Panels side by side."""
MARKED = 8
"""Places up to which each is written at a logarithmic axis."""


def draw(figure: Figure, results: Results, file_format: str, note: str = "") -> bytes:
    """The picture as a file of a format. note: said below the title, such as that the runs are reduced ones."""
    panels, axis = figure.panels, figure.axes[0]
    across, down = min(ROW, len(panels)), -(-len(panels) // ROW)
    picture = Picture(figsize=(1.2 + 4.8 * across, 4.2 * down), layout="constrained")
    curves = figure.curves(results, axis)
    grid = iter(picture.subplots(down, across, squeeze=False).flat)
    for panel, axes in zip(panels, grid, strict=False):
        _panel(axes, [curve for curve in curves if curve.panel == panel], figure.names)
        for stated in figure.marks:
            if stated.panel == panel:
                axes.plot(stated.x, stated.y, marker="*", markersize=12, linestyle="none", color="0.4", zorder=5)
                axes.annotate(
                    f"paper: {stated.name} ", (stated.x, stated.y), fontsize=8, color="0.4", va="center", ha="right"
                )
        axes.set_title(panel, loc="left", fontweight="bold")
        axes.set(xlabel=axis, ylabel=figure.measure)
        _scales(axes, figure.log)
        if axes.lines:
            axes.legend(loc="best", framealpha=0.9, edgecolor="0.8", fontsize=8)
    for axes in grid:
        axes.set_visible(False)
    picture.suptitle(figure.title + (f"\n{note}" if note else ""), x=0.01, ha="left")
    return content(picture, file_format)


def _scales(axes: Axes, log: str) -> None:
    """Logarithmic ones where asked for; a few places that were measured are written out in full."""
    if "x" in log:
        axes.set_xscale("log")
        places = sorted({float(x) for line in axes.lines for x in np.asarray(line.get_xdata(), float)})
        if len(places) <= MARKED:
            mark(axes.xaxis, places)
    if "y" in log:
        axes.set_yscale("log")


def _panel(axes: Axes, curves: Sequence[Curve], names: Sequence[str]) -> None:
    for curve in curves:
        where = [x for x, _ in curve.points]
        low, middle, high = ([f(values) for _, values in curve.points] for f in (min, mean, max))
        looks = style(names.index(curve.name))
        (line,) = axes.plot(where, middle, markevery=max(1, len(where) // 8), label=curve.name, **looks)
        axes.fill_between(where, low, high, color=line.get_color(), alpha=0.18, linewidth=0)
    tidy(axes)
