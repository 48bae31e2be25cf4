"""A figure's picture from its results alone: mean and spread over seeds, the paper's stated values as marks."""

import io
import textwrap
from collections.abc import Sequence
from statistics import mean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from reproduction.figure import Curve, Figure, Mark
from reproduction.results import Results

ROW = 3
"""Panels side by side; of four two, and of a picture with several axes all, with a row for each axis."""
MARKED = 8
"""Places up to which each is written at a logarithmic axis."""
ACCURACIES = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.96, 0.97, 0.98, 0.985, 0.99)
"""Ticks of a logit scale of accuracies."""
PLAIN = FuncFormatter(lambda value, _: f"{value:g}")


def draw(figure: Figure, results: Results, file_format: str = "png", note: str = "") -> bytes:
    """Return the picture as a file of a format. note: said below the title, such as that the runs are reduced ones."""
    figure = figure.with_results(results)
    drawn = figure.axes[: figure.drawn]
    curves = {axis: figure.curves(results, axis) for axis in drawn}
    shown = {(curve.panel, axis) for axis in drawn for curve in curves[axis]}
    every = [(panel, axis) for axis in drawn for panel in figure.panels]
    cells = [cell for cell in every if cell in shown or cell[1] == drawn[0]]
    across = len(figure.panels) if len(drawn) > 1 else min(2 if len(cells) == 4 else ROW, len(cells))
    down = -(-len(cells) // across)
    picture = Picture(figsize=(3.2 + 4.8 * across, 4.2 * down), layout="constrained")
    grid = iter(picture.subplots(down, across, squeeze=False, sharey="row" if figure.level else False).flat)
    lines: dict[str, Line2D] = {}
    for (panel, axis), axes in zip(cells, grid, strict=False):
        lines |= _panel(axes, figure.shown([curve for curve in curves[axis] if curve.panel == panel]), figure)
        _scales(axes, figure, panel)
        _marks(axes, [m for m in figure.marks if m.panel == panel and axis == drawn[0]], figure.of(panel, "measure"))
        axes.set_title(panel, loc="left", fontweight="bold")
        axes.set(xlabel=axis, ylabel=figure.measured(panel))
    for axes in grid:
        axes.set_visible(False)
    if lines:
        ordered = [name for name in figure.names if name in lines]
        picture.legend([lines[name] for name in ordered], ordered, loc="outside right upper", frameon=False, fontsize=9)
    picture.suptitle(figure.title + (f"\n{note}" if note else ""), x=0.01, ha="left")
    return content(picture, file_format)


def _panel(axes: Axes, curves: Sequence[Curve], figure: Figure) -> dict[str, Line2D]:
    """Draw the curves, each with a band from its smallest to its largest; return their lines by name."""
    drawn = {}
    for curve in curves:
        where = [x for x, _ in curve.points]
        low, middle, high = ([f(values) for _, values in curve.points] for f in (min, mean, max))
        looks, every = figure.looks(curve.name), max(1, len(where) // 8)
        (line,) = axes.plot(where, middle, markevery=every, label=curve.name, **looks)
        axes.fill_between(where, low, high, color=line.get_color(), alpha=0.18, linewidth=0)
        drawn[curve.name] = line
    tidy(axes)
    return drawn


def _scales(axes: Axes, figure: Figure, panel: str) -> None:
    """Set logarithmic axes where requested; write a few measured places out in full, and whole numbers as such."""
    places = sorted({float(x) for line in axes.lines for x in np.asarray(line.get_xdata(), float)})
    if "x" in figure.log:
        axes.set_xscale("log")
        if len(places) <= MARKED:
            mark(axes.xaxis, _apart(places))
    elif all(x.is_integer() for x in places):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.set_yscale(figure.of(panel, "y_scale") or ("log" if "y" in figure.log else "linear"))
    if axes.get_yscale() == "logit":
        axes.yaxis.set_major_locator(FixedLocator(ACCURACIES))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(PLAIN)
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        if axis.get_scale() == "log" and high < 300 * low and not isinstance(axis.get_major_locator(), FixedLocator):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(PLAIN)
            axis.set_minor_formatter(NullFormatter())
    if figure.bottom is not None and axes.get_ylim()[1] > figure.bottom:
        axes.set_ylim(bottom=figure.bottom)
    if figure.right is not None:
        axes.set_xlim(0, figure.right)
    if figure.measured(panel).endswith("accuracy") and axes.get_ylim()[1] > 1:
        axes.set_ylim(top=1.0)


def _apart(places: Sequence[float]) -> list[float]:
    """Return places of a logarithmic axis that leave room for their numbers.

    >>> _apart([1, 2, 2.5, 4])
    [1, 2, 4]
    """
    chosen = list(places[:1])
    for place in places:
        if place >= 1.6 * chosen[-1]:
            chosen.append(place)
    return chosen


def _marks(axes: Axes, marks: Sequence[Mark], measure: str) -> None:
    """Draw stars at what the paper, or another source, states, and say what they are in the corner that curves leave
    free: above those that fall, below those that rise."""
    lines = []
    for source in dict.fromkeys(stated.source for stated in marks):
        names = ", ".join(stated.name for stated in marks if stated.source == source)
        lines += textwrap.wrap(f"\u2605 {source}: {names}", 46)
    for stated in marks:
        axes.plot(stated.x, stated.y, marker="*", markersize=12, linestyle="none", color="0.4", zorder=5)
    falls = measure.endswith(("loss", "error"))
    y, va = (0.97, "top") if falls else (0.03, "bottom")
    axes.text(0.98, y, "\n".join(lines), transform=axes.transAxes, fontsize=8, color="0.3", va=va, ha="right")


def tidy(axes: Axes) -> None:
    """Draw pale lines behind everything else, and no box around it."""
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def mark(axis: Axis, numbers: Sequence[float]) -> None:
    """Set ticks at these numbers only, written out in full whatever the scale is."""
    axis.set_major_locator(FixedLocator(numbers))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"))


def content(figure: Picture, file_format: str) -> bytes:
    """Return the figure as a file of a format: png, svg or pdf."""
    file = io.BytesIO()
    figure.savefig(file, format=file_format, dpi=150)
    return file.getvalue()
