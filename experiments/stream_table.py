"""The tables of docs/streams.md and its picture, from the file of `experiments/streams.py`."""

import statistics
from pathlib import Path
from typing import Any

from common import HERE, Row, fill, ratio, read, table

DOCUMENT = HERE / "docs/streams.md"
PICTURE = HERE / "docs/images/streams.png"
COLOURS = {"Gauss-Newton": "#d62728", "AM-mem": "#1f77b4", "Adam": "#2ca02c", "adaptive forest": "#999999"}
OURS = "Gauss-Newton"
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
            lines.append([model, *(_spread(each, 3) for each in found)])
    return table(["model", *streams], lines)


def _spread(found: list[float], digits: int) -> str:
    if not found:
        return ""
    mean, deviation = statistics.mean(found), statistics.stdev(found) if len(found) > 1 else 0.0
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}" if deviation else f"{mean:.{digits}f}"


def verdict(rows: list[Row]) -> str:
    """On how many streams the default is ahead of other models, by the mean over seeds."""
    from stream_data import STREAMS
    from stream_models import MODELS

    lines = []
    for kind, words in (("single", "river's best single model"), ("ensemble", "the best of river's ensembles")):
        others = [name for name, model in MODELS.items() if model.kind == kind]
        ahead, behind = [], []
        for stream, about in STREAMS.items():
            sign = -1 if about.regression else 1
            best = max(sign * statistics.mean(found) for name in others if (found := values(rows, stream, name)))
            (ahead if sign * statistics.mean(values(rows, stream, OURS)) > best else behind).append(stream)
        lines.append(
            f"- Gauss-Newton is ahead of {words} on {len(ahead)} of {len(STREAMS)} streams, not on {_listed(behind)}."
        )
    ahead = []
    for stream, about in STREAMS.items():
        sign = -1 if about.regression else 1
        least = sign * statistics.mean(values(rows, stream, OURS))
        if any(sign * statistics.mean(values(rows, stream, name)) >= least for name in ("Adam", "AM-Adam", "AM-mem")):
            ahead.append(stream)
    lines.append(f"- Adam, AM-Adam or AM-mem are level with it or ahead on {_listed(ahead)}.")
    return "\n".join(lines)


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def choice(path: Path) -> str:
    rows = [row for row in read(path) if row["method"] == "gauss-newton"]
    lines = []
    for row in rows:
        changed = ", ".join(f"{name} {value}" for name, value in row["options"].items()) or "defaults"
        lines.append([changed, f"{row['mean']:.4f}", f"{row['relative_error']:.4f}"])
    return table(["options", "accuracy", "relative error"], lines)


def costs(rows: list[Row]) -> str:
    kept = {row["memory"]: f"{row['bytes'] / 1000:,.0f}" for row in rows if "memory" in row}
    lines = [
        [row["cost"], f"{row['microseconds']:.0f}", ratio(row), kept.get(row["cost"], "")]
        for row in rows
        if "cost" in row
    ]
    return table(["model", "microseconds a sample", "times Adam's: median (quartiles)", "kilobytes"], lines)


def draw(rows: list[Row], path: Path) -> None:
    """Progressive accuracy, or error, along each stream: the mean over seeds of the last `WINDOW` parts."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from stream_data import STREAMS

    figure, fields = plt.subplots(-(-len(STREAMS) // 4), 4, figsize=(16, 12))
    for axes in fields.flat[len(STREAMS) :]:
        axes.set_axis_off()
    for axes, (name, stream) in zip(fields.flat, STREAMS.items(), strict=False):
        for model, colour in COLOURS.items():
            curves = [row["curve"] for row in rows if (row.get("stream"), row.get("model")) == (name, model)]
            if curves:
                _curve(axes, curves, stream.length, model, colour)
        axes.set_title(name)
        axes.set_xlabel("samples")
        axes.set_ylabel("mean absolute error" if stream.regression else "accuracy")
        axes.grid(alpha=0.3)
    fields.flat[1].legend(frameon=False, fontsize=9, loc="lower right")
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
    fill(DOCUMENT, "\n" + verdict(rows) + "\n\n", "verdict")
    fill(DOCUMENT, "\n" + choice(path.with_name("stream_search.jsonl")) + "\n", "choice")
    fill(DOCUMENT, "\n" + costs(rows) + "\n", "cost")
    draw(rows, PICTURE)
    print(f"wrote {DOCUMENT.name} and {PICTURE.name}")
