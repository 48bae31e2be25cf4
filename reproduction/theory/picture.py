"""The picture of `python -m reproduction theory`, drawn from its result: errors and bounds on logarithmic scales."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from altmin.cli.plot import COLOURS, content, style, tidy

Row = Mapping[str, Any]


def draw(result: Mapping[str, Any], file_format: str = "png") -> bytes:
    """A picture as bytes, in three panels: inside the theorem, the rates without noise, and beyond the assumptions."""
    figure = Figure(figsize=(15, 5), layout="constrained")
    inside, rates, beyond = figure.subplots(1, 3)
    rows = result["rows"]
    _inside(inside, [row for row in rows if row["case"] == "quadratic" and not row["outside"]])
    _rates(rates, rows)
    _beyond(beyond, [row for row in rows if row["outside"] and row["constants"]["kind"] == "corrected"])
    for axes in (inside, rates, beyond):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("rounds t")
        tidy(axes)
    inside.set_ylabel("mean squared distance to the optimum")
    return content(figure, file_format)


def _inside(axes: Axes, rows: Sequence[Row]) -> None:
    """The problems with the fewest blocks: the measured error, and its bound dashed."""
    fewest = min((row["K"] for row in rows), default=0)
    axes.set_title(f"inside the theorem, K = {fewest}: error, and dashed its bound", loc="left")
    for i, row in enumerate([row for row in rows if row["K"] == fewest][: len(COLOURS)]):
        label = f"coupling {row['coupling']:.2g}, condition {row['condition']:.3g}"
        _curve(axes, row, i, label)
        axes.plot(row["times"], row["bound"], "--", color=COLOURS[i], linewidth=1)
    axes.legend(frameon=False, fontsize=8, loc="lower left")


def _rates(axes: Axes, rows: Sequence[Row]) -> None:
    """Without noise the error depends on curvature and step size only, so the effect of xi can be seen."""
    axes.set_title("the rates: what the printed $\\xi$ costs", loc="left")
    names = {
        "strong noise": "noise dominates",
        "no noise": "no noise, curvatures 1 and 1",
        "no noise, uneven": "no noise, curvatures 1 and 10",
        "no noise, printed xi": "the same, $\\xi$ as printed",
    }
    for i, row in enumerate([row for name in names for row in rows if row["case"] == name]):
        ends = f"{names[row['case']]}: $t^{{{row['slope']:.2f}}}$"
        _curve(axes, row, i, ends, "--" if row["case"] == "no noise, uneven" else "-")
    axes.legend(frameon=False, fontsize=9, loc="lower left")


def _beyond(axes: Axes, rows: Sequence[Row]) -> None:
    axes.set_title("beyond the assumptions", loc="left")
    for i, row in enumerate(row for row in rows if row["case"] != "quadratic" and row["noise"] is not None):
        label = row["case"] + (f", condition {row['condition']:.3g}" if row["case"] == "no projection" else "")
        _curve(axes, row, i, label, "-" if i < len(COLOURS) else ":")
    axes.set_ylim(1e-6, 1e6)  # without projection and with a condition of 100 the error passes 1e74
    axes.legend(frameon=True, framealpha=0.95, edgecolor="0.9", fontsize=8, loc="upper right")


def _curve(axes: Axes, row: Row, i: int, label: str, line: str = "-") -> None:
    mean, error = np.array(row["mean"]), np.array(row["standard_error"])
    look = {**style(i), "linestyle": line, "markersize": 4, "linewidth": 1.3, "markerfacecolor": "none"}
    axes.plot(row["times"], mean, label=label, **look)
    axes.fill_between(row["times"], mean - 3 * error, mean + 3 * error, color=look["color"], alpha=0.15, linewidth=0)
