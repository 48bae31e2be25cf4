"""One default for all tasks: AM-Adam with several shares, orders and penalties beside Adam, on the tasks of tasks.py.

On validation data the settings of `GRID`, of which the default was chosen; on test data the library's defaults, and the
share from backprop to full alternating minimization. All methods start from the same weights and see the same batches.
"""

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

import altmin
from altmin.common.errors import Diverged
from altmin.training import epoch_order
from reproduction.case import Case
from reproduction.figure import Figure
from reproduction.measurements import results
from reproduction.measurements.tasks import TASKS, Task
from reproduction.results import Row, Setting
from reproduction.tables import markdown, table

ORDERS = ("codes-first", "weights-first")
GROWING = [10.0, 0.2, 100.0]
"""Start, increment and maximum of mu."""
GRID: list[dict[str, Any]] = [
    *(
        {"share": 0.1, "order": "codes-first", "penalty": mu}
        for mu in ([1.0, 0.2, 100.0], GROWING, [100.0, 0.0, 100.0])
    ),
    *({"share": share, "order": "codes-first", "penalty": GROWING} for share in (0.03, 0.3)),
    {"share": 0.1, "order": "weights-first", "penalty": GROWING},
]
SHARES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
ALONG = [{"share": share, "order": order} for share, order in product(SHARES, ORDERS)]
ALONG_TASKS = ("mlp-2x100", "mlp-20x100", "lenet5", "higgs", "sine", "transformer")
WORST, BEST = -3.0, 1.0
"""The bounds of one measurement's gain when settings are ranked: no task decides alone, and being better than Adam in
one does not buy being worse in another."""


def train(case: Case, seed: int, setting: Setting) -> Row:
    """The metric after each of the task's evaluation points. Initial weights and batches depend on task and seed alone.
    A run that diverges has None from there on."""
    task, stream = TASKS[case["task"]], TASKS[case["task"]].metric == "prequential"
    samples, measured = (task.load(split, setting) for split in (case.part if stream else "train", case.part))
    torch.manual_seed(seed)
    model = task.model().to(setting.device)
    trainer = altmin.methods.create(case["method"], model, lr=task.lr, loss=task.loss, **_options(case.options))
    right = torch.zeros((), dtype=torch.int64, device=setting.device)
    found: dict[int, float] = {}
    when = {number for point in case["evaluate"] for number in task.measured_at(point)}
    start = time.perf_counter()
    try:
        for number, (x, y, last) in enumerate(batches(task, samples, seed), 1):
            if stream:
                with torch.no_grad():
                    right += (model(x).argmax(1) == y).sum()
            trainer.step(x, y)
            if last:
                trainer.end_epoch()
            if number in when:
                found[number] = int(right) / number / task.batch_size if stream else task.measure(model, measured)
            if number == case["evaluate"][-1]:
                break
    except Diverged:
        pass
    rows = [{"batch": point, "value": _mean(task, found, point)} for point in case["evaluate"]]
    return {"rows": rows, "seconds": round(time.perf_counter() - start, 1)}


def _options(options: Any) -> dict[str, Any]:
    given = dict(options)
    if "penalty" in given:
        start, increment, maximum = given["penalty"]
        given["penalty"] = altmin.Penalty(start, increment=increment, maximum=maximum)
    return given


def _mean(task: Task, found: dict[int, float], point: int) -> float | None:
    """The geometric mean of the measurements that belong to an evaluation point; None if the run did not reach it."""
    values = [found.get(number, math.nan) for number in task.measured_at(point)]
    if not all(math.isfinite(value) for value in values):
        return None
    return values[0] if len(values) == 1 else statistics.geometric_mean(values)


def batches(task: Task, samples: tuple[Tensor, Tensor], seed: int) -> Iterator[tuple[Tensor, Tensor, bool]]:
    """Mini-batches without end, each with whether it is its epoch's last; a stream's in the order of its samples."""
    x, y = samples
    epoch = 0
    while True:
        stream = task.metric == "prequential"
        order = torch.arange(len(x)) if stream else epoch_order(len(x), seed, epoch)
        parts = order.to(x.device).split(task.batch_size)
        for i, rows in enumerate(parts, 1):
            yield x[rows], y[rows], i == len(parts)
        epoch += 1


def case(task: str, method: str, options: dict[str, Any], part: str, seeds: int = 3) -> Case:
    settings = {"task": task, "method": method, **TASKS[task].settings}
    return Case(train, settings, options, part, seeds, small={"evaluate": [TASKS[task].measured_at(20)[-1]]})


CHOICE = [
    case(task, method, options, "validation", seeds=2)
    for task in TASKS
    if task != "residual-128"
    for method, options in [*(("am-adam", options) for options in GRID), ("adam", {})]
]
REPORT = [case(task, method, {}, "test") for task in TASKS for method in ("adam", "am-adam")]
SHARE = [case(task, "am-adam", options, "test", seeds=1) for task in ALONG_TASKS for options in ALONG]
FIGURES = [Figure("defaults", "AM-Adam and Adam on twelve tasks", [*CHOICE, *REPORT, *SHARE], axes=(), minutes=120)]


def values(task: str, method: str, options: dict[str, Any], part: str) -> dict[int, list[float | None]]:
    """By seed, what was measured at the task's evaluation points."""
    rows = results("defaults").of(case(task, method, options, part))
    return {row["seed"]: [point["value"] for point in row["rows"]] for row in rows}


def last(task: str, method: str, options: dict[str, Any] | None = None) -> float | None:
    """At the end of a task on test data, the mean over seeds."""
    return TASKS[task].mean([each[-1] for each in values(task, method, options or {}, "test").values()])


def gain(task: Task, value: float | None, adam: float | None) -> float:
    """By how many tolerances a value is better than Adam's; WORST for a run that diverged.

    >>> round(gain(TASKS["mlp-20x100"], 0.96, 0.95), 6), round(gain(TASKS["sine"], 3e-5, 2e-5), 6)
    (2.0, -1.0)
    """
    if value is None or adam is None:
        return WORST
    return (math.log(adam / value) if task.metric == "error" else value - adam) / task.tolerance


def score(task: Task, options: dict[str, Any]) -> float:
    """The mean gain over seeds, points averaged; each point's mean bounded by WORST and BEST."""
    mine, adam = (values(task.name, *which, "validation") for which in (("am-adam", options), ("adam", {})))
    seeds = sorted(mine.keys() & adam.keys())
    points = range(len(task.evaluate))
    means = [statistics.mean(gain(task, mine[seed][i], adam[seed][i]) for seed in seeds) for i in points]
    return statistics.mean(min(BEST, max(WORST, mean)) for mean in means)


@table("defaults.choice")
def ranking() -> str:
    """The settings of the grid, best first."""
    tasks = [TASKS[name] for name in dict.fromkeys(case["task"] for case in CHOICE)]
    found = [({task.name: score(task, options) for task in tasks}, options) for options in GRID]
    lines = []
    for each, options in sorted(found, key=lambda one: -statistics.mean(one[0].values())):
        worst = min(each, key=lambda task: each[task])
        start, increment, maximum = options["penalty"]
        mu = f"{start:g}" + (f", {increment:g} more a batch, at most {maximum:g}" if increment else "")
        mean = f"{statistics.mean(each.values()):+.2f}"
        lines.append([str(options["share"]), options["order"], mu, mean, f"{each[worst]:+.2f} ({worst})"])
    return markdown(["share", "order", "mu", "mean gain", "worst task"], lines)


@table("defaults.report")
def report() -> str:
    """Adam and the defaults side by side, means and deviations over seeds."""
    lines = []
    for task in TASKS.values():
        adam, mine = (values(task.name, method, {}, "test") for method in ("adam", "am-adam"))
        for i, point in enumerate(task.evaluate):
            theirs, ours = ([each[i] for each in found.values()] for found in (adam, mine))
            line = [task.name, f"{task.lr:g}", f"{point:,}", _spread(task, theirs), _spread(task, ours)]
            lines.append([*line, _compared(task, ours, theirs)])
    return markdown(["task", "rate", "after batches", "Adam", "AM-Adam", "difference or ratio"], lines)


@table("defaults.share")
def along_share() -> str:
    """At the end of each task, for every share and order."""
    lines = []
    for task, order in product(ALONG_TASKS, ORDERS):
        cells = [number(last(task, "am-adam", {"share": share, "order": order})) for share in SHARES]
        lines.append([task, order, number(adam_of_seed_0(task)), *cells])
    return markdown(["task", "order", "Adam", *(f"share {share:g}" for share in SHARES)], lines)


def adam_of_seed_0(task: str) -> float | None:
    """Where the share was measured, with one seed."""
    return values(task, "adam", {}, "test")[0][-1]


def number(value: float | None) -> str:
    """A metric for people to read: four decimals, or two digits of a small error."""
    return "diverged" if value is None else f"{value:.4f}" if value >= 0.01 else f"{value:.1e}"


def _spread(task: Task, values: Sequence[float | None]) -> str:
    """The mean with the deviation of accuracies, or the range of errors."""
    center, known = task.mean(values), [value for value in values if value is not None]
    if center is None or len(known) < 2:
        return number(center)
    if task.metric == "error":
        return f"{number(center)} ({number(min(known))} to {number(max(known))})"
    return f"{number(center)} ± {statistics.stdev(known):.4f}"


def _compared(task: Task, ours: Sequence[float | None], theirs: Sequence[float | None]) -> str:
    mine, adam = task.mean(ours), task.mean(theirs)
    if mine is None or adam is None:
        return ""
    return f"× {mine / adam:.2f}" if task.metric == "error" else f"{mine - adam:+.4f}"
