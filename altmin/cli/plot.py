"""The learning curves of `altmin compare`, from its result alone, and what all pictures share. matplotlib is imported
when something is drawn, since it takes a second."""

import io
import math
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which people with any kind of colour vision can distinguish; markers help in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 0.999)
CLOSEST = 1e-4  # to 0 and 1, where a logit scale has no end


def style(i: int, variant: int = 0) -> dict[str, Any]:
    """Colour, marker and line of curve i; those that share a colour, and its variants, have another line.

    >>> style(0)["linestyle"], style(7)["linestyle"], style(0)["color"] == style(7)["color"]
    ('-', '--', True)
    >>> style(0, 1) == style(7)
    True
    """
    return {
        "color": COLOURS[i % len(COLOURS)],
        "marker": MARKERS[i % len(MARKERS)],
        "linestyle": LINES[(i // len(COLOURS) + variant) % len(LINES)],
    }


def tidy(axes: "Axes") -> None:
    """Pale lines behind what is drawn, and no box around it."""
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def mark(axis: "Axis", numbers: Sequence[float]) -> None:
    """Ticks at these numbers only, written out in full whatever the scale is."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_major_locator(FixedLocator(numbers))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"))


def content(figure: "Figure", file_format: str) -> bytes:
    """The figure as a file of a format: png, svg or pdf."""
    file = io.BytesIO()
    figure.savefig(file, format=file_format, dpi=150)
    return file.getvalue()


def draw(result: Mapping[str, Any], file_format: str = "png") -> bytes:
    """Return a picture of accuracy against batches: a line for each method, the range of its seeds around it.

    Both axes are wide where the learning is: batches on a logarithmic scale, since most happens early, and accuracy on
    a logit scale, on which 0.98 is as far from 0.99 as 0.67 is from 0.8.
    """
    from matplotlib.figure import Figure

    config, seeds, many = result["config"], len(result["seeds"]), len(result["methods"]) > 5
    what, end = measure(config).replace("_", " "), config["batches_per_epoch"] * config["epochs"]
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_yscale("logit")
    seen: list[float] = []
    for i, method in enumerate(result["methods"]):
        points = learning_curve(result, method)
        low, middle, high = ([min(max(f(v), CLOSEST), 1 - CLOSEST) for v in points.values()] for f in (min, mean, max))
        seen += low + high
        last = f"  {mean(points[max(points)]):.4f}" if points else "  diverged"
        # Curves that coincide stay visible: those named later are wider, and lie below.
        wider = i * min(1.0, 4 / len(result["methods"]))
        (line,) = axes.plot(list(points), middle, linewidth=1.5 + wider, zorder=3 - i / 100, **style(i))
        line.set(label=f"{method}{last}", markersize=4.5 + wider)
        axes.fill_between(list(points), low, high, color=line.get_color(), alpha=0.18, linewidth=0)
    for epoch in range(1, config["epochs"] + 1):
        axes.axvline(epoch * config["batches_per_epoch"], color="0.6", linewidth=0.8, linestyle=":", zorder=0)
    least, most = (math.log(v / (1 - v)) for v in (min(seen, default=0.5), max(seen, default=0.5)))
    margin = 0.06 * (most - least) + 0.05
    axes.set_ylim(*(1 / (1 + math.exp(-v)) for v in (least - margin, most + margin)))
    mark(axes.yaxis, TICKS)
    mark(axes.xaxis, [m * 10**e for e in range(8) for m in (1, 2, 5) if m * 10**e <= end])
    tidy(axes)
    several = f", mean and range of {seeds} seeds" if seeds > 1 else ""
    axes.set_title(f"{result['data']}, {result['model']}{several}", loc="left", fontweight="bold")
    axes.set_xlabel(f"batches of {config['batch_size']} samples seen (dotted: ends of epochs)")
    axes.set_ylabel(what)
    beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)} if many else {"loc": "lower right"}
    axes.legend(title=f"last {what}", frameon=True, framealpha=0.9, edgecolor="0.8", **beside)
    return content(figure, file_format)


def learning_curve(result: Mapping[str, Any], method: str) -> dict[int, list[float]]:
    """Return the batches seen, in order, each with the accuracies of the method's seeds there."""
    column, per_epoch = measure(result["config"]), result["config"]["batches_per_epoch"]
    points: dict[int, list[float]] = {}
    for run in result["runs"]:
        if run["method"] == method:
            rows = [(row["batch"], row[column]) for row in run["batches"]]
            rows += [(row["epoch"] * per_epoch, row[column]) for row in run["epochs"]]
            for batch, value in dict(rows).items():  # at an epoch's end, what is measured after `end_epoch` counts
                points.setdefault(batch, []).append(value)
    return dict(sorted(points.items()))


def measure(config: Mapping[str, Any]) -> str:
    """Return the column of what is compared."""
    return f"{config['evaluated_on']}_{config['measure']}"
