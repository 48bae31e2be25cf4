"""The tables and the picture of docs/defaults.md, from the files of `experiments/defaults.py`."""

import json
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common import HERE, fill, read, table
from default_runs import number
from default_tasks import TASKS, Task

WORST, BEST = -3.0, 1.0
"""The bounds of one measurement's gain when settings are ranked: no task decides alone, and being better than Adam in
one does not buy being worse in another."""


class Results:
    """The lines of a results file by task, method and options."""

    def __init__(self, path: Path):
        self.rows = read(path)
        self.settings = sorted({_text(row["options"]) for row in self.rows if row["method"] != "adam"})

    def of(self, task: Task, method: str, options: dict[str, Any]) -> dict[int, list[float | None]]:
        """By seed, the values at the task's evaluation points."""
        return {
            row["seed"]: [each["value"] for each in row["rows"]]
            for row in self.rows
            if (row["task"], row["method"], row["options"]) == (task.name, method, options)
            and row["config"] == task.config
        }

    def tasks(self) -> list[Task]:
        """Those that were measured, in the order of the suite."""
        names = {row["task"] for row in self.rows}
        return [task for task in TASKS.values() if task.name in names]


def gain(task: Task, value: float | None, adam: float | None) -> float:
    """By how many tolerances a value is better than Adam's; WORST for a run that diverged.

    >>> round(gain(TASKS["mlp-20x100"], 0.96, 0.95), 6), round(gain(TASKS["sine"], 3e-5, 2e-5), 6)
    (2.0, -1.0)
    """
    if value is None or adam is None:
        return WORST
    return (value - adam if task.higher_is_better else math.log(adam / value)) / task.tolerance


def scores(results: Results, options: dict[str, Any]) -> dict[str, float]:
    """By task, the mean gain over seeds, points averaged; each point's mean bounded by WORST and BEST."""
    found = {}
    for task in results.tasks():
        mine, adam = results.of(task, "am-adam", options), results.of(task, "adam", {})
        seeds = sorted(mine.keys() & adam.keys())
        if seeds:
            points = range(len(task.evaluate))
            means = [statistics.mean(gain(task, mine[seed][i], adam[seed][i]) for seed in seeds) for i in points]
            found[task.name] = statistics.mean(min(BEST, max(WORST, mean)) for mean in means)
    return found


def ranking(path: Path) -> str:
    """The settings that were measured on as many tasks as any, best first."""
    results = Results(path)
    found = {text: scores(results, json.loads(text)) for text in results.settings}
    full = max(len(each) for each in found.values())
    whole = {text: each for text, each in found.items() if len(each) == full}
    lines = []
    for text, each in sorted(whole.items(), key=lambda item: -statistics.mean(item[1].values())):
        worst = min(each, key=lambda task: each[task])
        cells = [
            *_described(json.loads(text)),
            f"{statistics.mean(each.values()):+.2f}",
            f"{each[worst]:+.2f} ({worst})",
        ]
        lines.append(cells)
    return table(["share", "order", "mu", "mean gain", "worst task"], lines)


def report(path: Path) -> str:
    """Adam and the defaults side by side, means and deviations over seeds."""
    results, lines = Results(path), []
    for task in results.tasks():
        adam, mine = results.of(task, "adam", {}), results.of(task, "am-adam", {})
        for i, point in enumerate(task.evaluate):
            theirs, ours = ([values[i] for values in found.values()] for found in (adam, mine))
            if theirs and ours:
                lines.append([task.name, f"{task.lr:g}", f"{point:,}", _spread(task, theirs), _spread(task, ours)])
                lines[-1].append(_compared(task, ours, theirs))
    return table(["task", "rate", "after batches", "Adam", "AM-Adam", "difference or ratio"], lines)


def along_share(path: Path) -> str:
    """At the end of each task, for every share and order."""
    results = Results(path)
    shares = sorted({json.loads(text)["share"] for text in results.settings})
    orders = sorted({json.loads(text)["order"] for text in results.settings})
    lines = []
    for task in results.tasks():
        adam = task.mean([values[-1] for values in results.of(task, "adam", {}).values()])
        for order in orders:
            runs = [results.of(task, "am-adam", {"share": share, "order": order}).values() for share in shares]
            cells = [number(task.mean([values[-1] for values in found])) if found else "" for found in runs]
            lines.append([task.name, order, number(adam), *cells])
    return table(["task", "order", "Adam", *(f"share {share:g}" for share in shares)], lines)


def fill_tables(document: Path, choice: Path, defaults: Path, share: Path) -> int:
    """Every part whose file is there; of the others, how to make it."""
    parts: list[tuple[str, str, Path, Callable[[Path], str]]] = [
        ("choice", "choose", choice, ranking),
        ("defaults", "report", defaults, report),
        ("share", "share", share, _share_with_picture),
    ]
    for name, command, path, text in parts:
        if path.exists():
            fill(document, "\n" + text(path) + "\n", name)
        else:
            missing = f"Not measured yet: `python experiments/defaults.py {command}` writes `{path.relative_to(HERE)}`."
            print(f"defaults.py: {missing}", file=sys.stderr)
            fill(document, f"\n{missing}\n\n", name)
    print(f"wrote {document.name}")
    return 0


def _share_with_picture(path: Path) -> str:
    from default_picture import draw

    draw(HERE / "docs/images/share.png", Results(path))
    return along_share(path) + "\n![accuracy or error along the share, both orders, and Adam](images/share.png)\n"


def _text(options: dict[str, Any]) -> str:
    return json.dumps(options, sort_keys=True)


def _described(options: dict[str, Any]) -> list[str]:
    """Share, order and mu as words; "default" where nothing was given."""
    mu = "default"
    if "penalty" in options:
        start, increment, maximum = options["penalty"]
        mu = f"{start:g}" + (f", {increment:g} more a batch" if increment else "")
        mu += f", at most {maximum:g}" if increment and maximum is not None else ""
    return [str(options.get("share", "default")), options.get("order", "default"), mu]


def _spread(task: Task, values: Sequence[float | None]) -> str:
    """The mean with the deviation of accuracies, or the range of errors."""
    center, known = task.mean(values), [value for value in values if value is not None]
    if center is None or len(known) < 2:
        return number(center)
    if task.higher_is_better:
        return f"{center:.4f} ± {statistics.stdev(known):.4f}"
    return f"{number(center)} ({number(min(known))} to {number(max(known))})"


def _compared(task: Task, ours: Sequence[float | None], theirs: Sequence[float | None]) -> str:
    mine, adam = task.mean(ours), task.mean(theirs)
    if mine is None or adam is None:
        return ""
    return f"{mine - adam:+.4f}" if task.higher_is_better else f"× {mine / adam:.2f}"
