"""The tables of docs/streams.md, from the files of `reproduction figure streams` and of `experiments/streams.py`."""

import statistics
from pathlib import Path

from common import HERE, Row, fill, ratio, read, table

from reproduction.streams import MODELS, STREAMS

DOCUMENT = HERE / "docs/streams.md"
RUNS = HERE / "reproduction/results/streams.jsonl"
OURS = "Gauss-Newton"


def runs() -> list[Row]:
    """Every run of the figure, with its stream and model."""
    return [row["config"] | row for row in read(RUNS)]


def values(rows: list[Row], stream: str, model: str) -> list[float]:
    """Over seeds."""
    return [row["value"] for row in rows if (row["stream"], row["model"]) == (stream, model)]


def results(rows: list[Row], regression: bool) -> str:
    """A line for each model, a column for each stream: mean and standard deviation over seeds."""
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


def fill_tables(path: Path) -> None:
    rows = runs()
    fill(DOCUMENT, "\n" + results(rows, regression=False) + "\n", "accuracy")
    fill(DOCUMENT, "\n" + results(rows, regression=True) + "\n", "error")
    fill(DOCUMENT, "\n" + verdict(rows) + "\n\n", "verdict")
    fill(DOCUMENT, "\n" + choice(path.with_name("stream_search.jsonl")) + "\n", "choice")
    fill(DOCUMENT, "\n" + costs(read(path)) + "\n", "cost")
    print(f"wrote {DOCUMENT.name}")
