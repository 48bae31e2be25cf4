"""Learning curves from the result of `altmin compare`. Drawing reads a result; it never trains."""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

FORMATS = ("png", "svg", "pdf")

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; markers help in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 0.999)
CLOSEST = 1e-4  # to 0 and 1, where a logit scale has no end


def check_format(path: Path) -> None:
    """Refuse a name that tells of no picture that can be drawn."""
    if path.suffix[1:] not in FORMATS:
        raise ValueError(f"{path} should end in {' or '.join('.' + each for each in FORMATS)} to be a picture")


def curves(result: Mapping[str, Any], file_format: str = "png") -> bytes:
    """A picture of accuracy against batches seen: a line for each method, the range of its seeds around it.

    Both axes are wide where the learning is: batches on a logarithmic scale, since most happens early, and
    accuracy on a logit scale, on which 0.98 is as far from 0.99 as 0.67 is from 0.8.
    """
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    seen: list[float] = []
    for i, method in enumerate(result["methods"]):
        points = learning_curve(result, method)
        low, middle, high = ([_inside(f(v)) for v in points.values()] for f in (min, mean, max))
        seen += low + high
        last = f"  {mean(points[max(points)]):.4f}" if points else "  diverged"
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        # Curves that coincide stay visible: those named later are wider, and lie below.
        (line,) = axes.plot(list(points), middle, color=colour, linewidth=1.5 + i, zorder=3 - i / 100)
        line.set(label=f"{method}{last}", marker=marker, markersize=4.5 + i)
        axes.fill_between(list(points), low, high, color=colour, alpha=0.18, linewidth=0)
    what = f"{result['config']['evaluated_on']} accuracy"
    seeds = f", mean and range of {len(result['seeds'])} seeds" if len(result["seeds"]) > 1 else ""
    size = result["config"]["batch_size"]
    axes.set_title(f"{result['data']}, {result['model']}{seeds}", loc="left", fontweight="bold")
    axes.set_xlabel(f"batches of {size} samples seen (dotted: ends of epochs)")
    axes.set_ylabel(what)
    _scale_batches(axes, result["config"]["batches_per_epoch"], result["config"]["epochs"])
    _scale_accuracy(axes, seen)
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(title=f"last {what}", loc="lower right", frameon=True, framealpha=0.9, edgecolor="0.8")
    content = io.BytesIO()
    figure.savefig(content, format=file_format, dpi=150)
    return content.getvalue()


def learning_curve(result: Mapping[str, Any], method: str) -> dict[int, list[float]]:
    """Batches seen, in order, each with the accuracies of the method's seeds there."""
    measure = f"{result['config']['evaluated_on']}_accuracy"
    points: dict[int, list[float]] = {}
    for run in result["runs"]:
        if run["method"] == method:
            rows = [(row["batch"], row[measure]) for row in run["batches"]]
            per_epoch = result["config"]["batches_per_epoch"]
            rows += [(row["epoch"] * per_epoch, row[measure]) for row in run["epochs"]]
            for batch, value in dict(rows).items():  # an epoch's end, after `end_epoch`, is the later word
                points.setdefault(batch, []).append(value)
    return dict(sorted(points.items()))


def _inside(value: float) -> float:
    return min(max(value, CLOSEST), 1 - CLOSEST)


def _logit(value: float) -> float:
    return math.log(value / (1 - value))


def _scale_batches(axes: Axes, per_epoch: int, epochs: int) -> None:
    axes.set_xscale("log")
    marks = [m * 10**e for e in range(8) for m in (1, 2, 5) if m * 10**e <= per_epoch * epochs]
    axes.xaxis.set_major_locator(FixedLocator(marks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    for epoch in range(1, epochs + 1):
        axes.axvline(epoch * per_epoch, color="0.6", linewidth=0.8, linestyle=":", zorder=0)


def _scale_accuracy(axes: Axes, values: Sequence[float]) -> None:
    axes.set_yscale("logit")
    axes.yaxis.set_major_locator(FixedLocator(TICKS))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    low, high = (_logit(f(values, default=0.5)) for f in (min, max))
    margin = 0.06 * (high - low) + 0.05
    axes.set_ylim(*(1 / (1 + math.exp(-v)) for v in (low - margin, high + margin)))
