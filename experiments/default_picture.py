"""The picture of docs/defaults.md: what is reached along the share, in both orders, beside Adam."""

import json
import math
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

LOOKS = {"codes-first": ("o-", "#1f77b4"), "weights-first": ("s--", "#d62728")}
GREY = "#777777"


def draw(path: Path, results: Any) -> None:
    """One field for each task of `results` (default_table.Results): its metric at the end over the share."""
    tasks = results.tasks()
    columns = min(3, len(tasks))
    lines = math.ceil(len(tasks) / columns)
    figure, fields = plt.subplots(lines, columns, figsize=(4.6 * columns, 3.4 * lines), squeeze=False)
    for field in fields.flat[len(tasks) :]:
        field.axis("off")
    for field, task in zip(fields.flat, tasks, strict=False):
        _field(field, results, task)
    fields.flat[0].legend(frameon=False, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
    print(f"wrote {path.name}")


def _field(axes: Axes, results: Any, task: Any) -> None:
    options = [json.loads(text) for text in results.settings]
    shares = sorted({each["share"] for each in options})
    for order, (style, colour) in LOOKS.items():
        runs = {share: results.of(task, "am-adam", {"share": share, "order": order}).values() for share in shares}
        ends = {share: [values[-1] for values in found] for share, found in runs.items() if found}
        single = [(share, value) for share, found in ends.items() for value in found if value is not None]
        means = [(share, mean) for share, found in ends.items() if (mean := task.mean(found)) is not None]
        axes.plot(*_columns(single), style[0], color=colour, ms=3, alpha=0.5)
        axes.plot(*_columns(means), style, color=colour, ms=5, label=order)
    adam = [values[-1] for values in results.of(task, "adam", {}).values()]
    axes.axhline(task.mean(adam), color=GREY, lw=1.2, label="Adam")
    axes.axhspan(min(adam), max(adam), color=GREY, alpha=0.15, lw=0)
    axes.set_xscale("symlog", linthresh=0.01, linscale=0.5)
    axes.set_xticks(shares, [f"{share:g}" for share in shares])
    axes.minorticks_off()
    if not task.higher_is_better:
        axes.set_yscale("log")
    axes.set_title(task.name)
    axes.set_xlabel("share")
    axes.set_ylabel("test accuracy" if task.higher_is_better else "error on other samples")
    axes.grid(alpha=0.3)


def _columns(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
