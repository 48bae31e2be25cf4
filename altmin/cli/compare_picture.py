"""The learning curves of `altmin compare`, from its result alone."""

import math
from collections.abc import Mapping
from statistics import mean
from typing import Any

from matplotlib.figure import Figure

from altmin.cli import plot
from altmin.cli.compare import measure

TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 0.999)
CLOSEST = 1e-4  # to 0 and 1, where a logit scale has no end


def draw(result: Mapping[str, Any], file_format: str = "png") -> bytes:
    """Return a picture of accuracy against batches: a line for each method, the range of its seeds around it.

    Both axes are wide where the learning is: batches on a logarithmic scale, since most happens early, and accuracy on
    a logit scale, on which 0.98 is as far from 0.99 as 0.67 is from 0.8.
    """
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
        (line,) = axes.plot(list(points), middle, linewidth=1.5 + wider, zorder=3 - i / 100, **plot.style(i))
        line.set(label=f"{method}{last}", markersize=4.5 + wider)
        axes.fill_between(list(points), low, high, color=line.get_color(), alpha=0.18, linewidth=0)
    for epoch in range(1, config["epochs"] + 1):
        axes.axvline(epoch * config["batches_per_epoch"], color="0.6", linewidth=0.8, linestyle=":", zorder=0)
    least, most = (math.log(v / (1 - v)) for v in (min(seen, default=0.5), max(seen, default=0.5)))
    margin = 0.06 * (most - least) + 0.05
    axes.set_ylim(*(1 / (1 + math.exp(-v)) for v in (least - margin, most + margin)))
    plot.mark(axes.yaxis, TICKS)
    plot.mark(axes.xaxis, [m * 10**e for e in range(8) for m in (1, 2, 5) if m * 10**e <= end])
    plot.tidy(axes)
    several = f", mean and range of {seeds} seeds" if seeds > 1 else ""
    axes.set_title(f"{result['data']}, {result['model']}{several}", loc="left", fontweight="bold")
    axes.set_xlabel(f"batches of {config['batch_size']} samples seen (dotted: ends of epochs)")
    axes.set_ylabel(what)
    beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)} if many else {"loc": "lower right"}
    axes.legend(title=f"last {what}", frameon=True, framealpha=0.9, edgecolor="0.8", **beside)
    return plot.content(figure, file_format)


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
