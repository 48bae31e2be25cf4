"""Training the tasks of experiments/defaults.py: one run, and many into a file that can be gone on with."""

import json
import math
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from common import Row, read
from default_tasks import TASKS, Task
from torch import Tensor

import altmin
from altmin.cli import output
from altmin.common.errors import Diverged
from altmin.training import epoch_order

KEY = ("task", "method", "options", "seed", "measured_on", "config")
"""What a line of a results file is found by."""


@dataclass(frozen=True)
class Setting:
    """How AM-Adam is set; None is the library's default. penalty: start, increment and maximum of mu."""

    share: float | None = None
    order: str | None = None
    penalty: tuple[float, float, float | None] | None = None

    def options(self) -> dict[str, Any]:
        """As it stands in a results file: what was given, in JSON's own types."""
        given = {"share": self.share, "order": self.order, "penalty": self.penalty and list(self.penalty)}
        return {name: value for name, value in given.items() if value is not None}


def settings(shares: Iterable[Any], orders: Iterable[Any], penalties: Iterable[Any]) -> list[Setting]:
    return [Setting(*each) for each in product(shares, orders, penalties)]


@dataclass(frozen=True)
class Where:
    """On which device, with data from which folder (None: where `altmin.data` looks)."""

    device: torch.device = torch.device("cpu")  # noqa: RUF009
    data_dir: str | None = None

    def load(self, task: Task, split: str) -> tuple[Tensor, Tensor]:
        x, y = task.load(split, self.data_dir)
        return x.to(self.device), y.to(self.device)


def train(task: Task, method: str, options: dict[str, Any], seed: int, measured_on: str, where: Where) -> list[Row]:
    """One run: the metric after each of the task's evaluation points. Initial weights and batches depend on task and
    seed alone. A run that leaves the finite numbers has None from there on."""
    stream = task.metric == "prequential"
    train, measured = (where.load(task, split) for split in (measured_on if stream else "train", measured_on))
    torch.manual_seed(seed)
    model = task.model().to(where.device)
    given = dict(options)
    if "penalty" in given:
        start, increment, maximum = given["penalty"]
        given["penalty"] = altmin.Penalty(start, increment=increment, maximum=maximum)
    trainer = altmin.methods.create(method, model, lr=task.lr, loss=task.loss, **given)
    right = torch.zeros((), dtype=torch.int64, device=where.device)
    found: dict[int, float] = {}
    when = {number for point in task.evaluate for number in task.measured_at(point)}
    try:
        for number, (x, y, last) in enumerate(batches(task, train, seed), 1):
            if stream:
                with torch.no_grad():
                    right += (model(x).argmax(1) == y).sum()
            trainer.step(x, y)
            if last:
                trainer.end_epoch()
            if number in when:
                found[number] = int(right) / number / task.batch_size if stream else task.measure(model, measured)
            if number == task.evaluate[-1]:
                break
    except Diverged as error:
        print(f"defaults.py: {error}", file=sys.stderr)
    return [{"batch": point, "value": _mean(task, found, point)} for point in task.evaluate]


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


@dataclass(frozen=True)
class Plan:
    """Runs to be made: every task with every method in each of its settings from every seed."""

    tasks: Sequence[str]
    methods: dict[str, Sequence[Setting]]
    seeds: Sequence[int]
    measured_on: str

    def rows(self, task: Task) -> Iterator[Row]:
        """The beginning of a line for each run of a task"""
        for method, chosen in self.methods.items():
            for setting, seed in product(chosen, self.seeds):
                row: Row = {"task": task.name, "method": method, "options": setting.options(), "seed": seed}
                yield row | {"measured_on": self.measured_on, "config": task.config}


def run_all(path: Path, plan: Plan, where: Where) -> None:
    """Appends a line to the file for every run that it does not have yet; a task whose data is not there is left out,
    with a message."""
    path.parent.mkdir(exist_ok=True)
    done = {key(row) for row in read(path)} if path.exists() else set()
    environment = output.environment(where.device)
    for task in (TASKS[name] for name in plan.tasks):
        try:
            task.load(plan.measured_on, where.data_dir)
        except FileNotFoundError as error:
            print(f"defaults.py: {task.name} is left out: {error}", file=sys.stderr)
            continue
        for row in plan.rows(task):
            if key(row) in done:
                continue
            start = time.perf_counter()
            row["rows"] = train(task, row["method"], row["options"], row["seed"], plan.measured_on, where)
            row |= {"seconds": round(time.perf_counter() - start, 1), "environment": environment}
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(line(row), flush=True)


def key(row: Row) -> str:
    return json.dumps([row[name] for name in KEY], sort_keys=True)


def line(row: Row) -> str:
    """A run in one line, for whoever watches."""
    found = ", ".join(f"{each['batch']}: {number(each['value'])}" for each in row["rows"])
    return f"{row['task']:13} {row['method']:8} {row['options']} seed {row['seed']}: {found} ({row['seconds']} s)"


def number(value: float | None) -> str:
    """A metric for people to read: four decimals, or two digits of a small error."""
    return "diverged" if value is None else f"{value:.4f}" if value >= 0.01 else f"{value:.1e}"
