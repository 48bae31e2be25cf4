"""The learning curves of `altmin compare`, from its result alone. matplotlib is imported when something is drawn, since
it takes a second."""

import io
from collections.abc import Mapping
from statistics import mean
from typing import Any

TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 0.999)
MARKERS = "os^DvPXd*<"
CLOSEST = 1e-4  # to 0 and 1, where a logit scale has no end


def draw(result: Mapping[str, Any], file_format: str = "png") -> bytes:
    """Return a picture of accuracy against batches: a line for each method, the range of its seeds around it.

    Both axes are wide where the learning is: batches on a logarithmic scale, since most happens early, and accuracy on
    a logit scale, on which 0.98 is as far from 0.99 as 0.67 is from 0.8.
    """
    from matplotlib import style
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    config, seeds = result["config"], len(result["seeds"])
    what, end = f"{config['evaluated_on']} accuracy", config["batches_per_epoch"] * config["epochs"]
    with style.context("tableau-colorblind10"):
        figure = Figure(figsize=(8, 5), layout="constrained")
        axes = figure.subplots()
    axes.set_title(f"{result['data']}, {result['model']}" + f", mean and range of {seeds} seeds" * (seeds > 1))
    axes.set(xscale="log", yscale="logit", xlabel=f"batches of {config['batch_size']} samples seen", ylabel=what)
    for i, method in enumerate(result["methods"]):
        points = learning_curve(result, method)
        low, middle, high = ([min(max(f(v), CLOSEST), 1 - CLOSEST) for v in points.values()] for f in (min, mean, max))
        last = f"{mean(points[max(points)]):.4f}" if points else "diverged"
        axes.plot(list(points), middle, marker=MARKERS[i % len(MARKERS)], label=f"{method}  {last}")
        axes.fill_between(list(points), low, high, color=axes.lines[-1].get_color(), alpha=0.18, linewidth=0)
    decades = [m * 10**e for e in range(8) for m in (1, 2, 5) if m * 10**e <= end]
    for axis, ticks in ((axes.xaxis, decades), (axes.yaxis, TICKS)):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(ScalarFormatter())
    axes.grid(color="0.9")
    axes.legend(title=f"last {what}")
    file = io.BytesIO()
    figure.savefig(file, format=file_format, dpi=150)
    return file.getvalue()


def learning_curve(result: Mapping[str, Any], method: str) -> dict[int, list[float]]:
    """Return the batches seen, in order, each with the accuracies of the method's seeds there."""
    column, per_epoch = f"{result['config']['evaluated_on']}_accuracy", result["config"]["batches_per_epoch"]
    points: dict[int, list[float]] = {}
    for run in (run for run in result["runs"] if run["method"] == method):
        at = {row["batch"]: row[column] for row in run["batches"]}
        at |= {row["epoch"] * per_epoch: row[column] for row in run["epochs"]}  # there, the value after `end_epoch`
        for batch, value in at.items():
            points.setdefault(batch, []).append(value)
    return dict(sorted(points.items()))
