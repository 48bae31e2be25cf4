"""The tables of docs/streams.md and its picture, from the file of `experiments/streams.py`."""

import statistics
from pathlib import Path
from typing import Any

from common import HERE, Row, fill, ratio, read, table

DOCUMENT = HERE / "docs/streams.md"
PICTURE = HERE / "docs/images/streams.png"
COLOURS = {"AM-mem": "#d62728", "AM-Adam": "#1f77b4", "Adam": "#2ca02c", "Hoeffding tree": "#999999"}
WINDOW = 5
"""Parts of a stream that a point of the picture is the mean of."""


def values(rows: list[Row], stream: str, model: str) -> list[float]:
    """Over seeds."""
    return [row["value"] for row in rows if (row.get("stream"), row.get("model")) == (stream, model)]


def results(rows: list[Row], regression: bool) -> str:
    """A line for each model, a column for each stream: mean and standard deviation over seeds."""
    from stream_data import STREAMS
    from stream_models import MODELS

    streams = [name for name, stream in STREAMS.items() if stream.regression == regression]
    lines = []
    for model in MODELS:
        found = [values(rows, stream, model) for stream in streams]
        if any(found):
            lines.append([model, *(_spread(each, 2 if regression else 3) for each in found)])
    return table(["model", *streams], lines)


def _spread(found: list[float], digits: int) -> str:
    if not found:
        return ""
    mean, deviation = statistics.mean(found), statistics.stdev(found) if len(found) > 1 else 0.0
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}" if deviation else f"{mean:.{digits}f}"


def costs(rows: list[Row]) -> str:
    lines = [[row["cost"], f"{row['microseconds']:.0f}", ratio(row)] for row in rows if "cost" in row]
    return table(["method", "microseconds a sample", "times Adam's: median (quartiles)"], lines)


def draw(rows: list[Row], path: Path) -> None:
    """Progressive accuracy, or error, along each stream: the mean over seeds of the last `WINDOW` parts."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from stream_data import STREAMS

    figure, fields = plt.subplots(3, 3, figsize=(13, 9.5))
    for axes, (name, stream) in zip(fields.flat, STREAMS.items(), strict=True):
        for model, colour in COLOURS.items():
            curves = [row["curve"] for row in rows if (row.get("stream"), row.get("model")) == (name, model)]
            if curves:
                _curve(axes, curves, stream.length, model, colour)
        axes.set_title(name)
        axes.set_xlabel("samples")
        axes.set_ylabel("mean absolute error" if stream.regression else "accuracy")
        axes.grid(alpha=0.3)
    fields.flat[2].legend(frameon=False, fontsize=9, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _curve(axes: Any, curves: list[list[float]], samples: int, model: str, colour: str) -> None:
    mean = [statistics.mean(part) for part in zip(*curves, strict=True)]
    smooth = [statistics.mean(mean[max(0, k - WINDOW + 1) : k + 1]) for k in range(len(mean))]
    axes.plot([(k + 1) * samples / len(mean) for k in range(len(mean))], smooth, color=colour, lw=1.6, label=model)


def fill_tables(path: Path) -> None:
    rows = read(path)
    fill(DOCUMENT, "\n" + results(rows, regression=False) + "\n", "accuracy")
    fill(DOCUMENT, "\n" + results(rows, regression=True) + "\n", "error")
    fill(DOCUMENT, "\n" + costs(rows) + "\n", "cost")
    draw(rows, PICTURE)
    print(f"wrote {DOCUMENT.name} and {PICTURE.name}")
