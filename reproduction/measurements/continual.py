"""Tasks in sequence beyond the figure `continual`: mini-batches of other sizes than its options were chosen for, and
what was tried for it on validation data."""

from itertools import product
from statistics import mean
from typing import Any

from reproduction.continual import Stream
from reproduction.figure import Figure
from reproduction.figures.continual import CONTINUAL, GAUSS_NEWTON, KEPT, LEARNERS, OUTPUT, RIDGE
from reproduction.measurements import results
from reproduction.results import words
from reproduction.tables import markdown, table

SIZES = (20, 50, 200, 1000)
SCALED = f"{KEPT}, lr in proportion"
Options = dict[str, Any]


def sized(name: str, size: int) -> Stream:
    learner, options, _ = LEARNERS[KEPT if name == SCALED else name]
    if name == SCALED:
        options = {**options, "lr": options["lr"] * size / 200}
    return Stream(learner, "split", options, batch_size=size, seeds=3, label=name)


BATCHES = {name: [sized(name, size) for size in SIZES] for name in (KEPT, SCALED, OUTPUT, "Adam", "SGD", "replay")}


def grid(**values: list[Any]) -> list[Options]:
    return [dict(zip(values, each, strict=True)) for each in product(*values.values())]


SMALL = [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3]
FITTED: Options = {"forget": [1.0], "lr": [1e-4], "steps": [None]}
SPLIT: dict[str, list[Options]] = {
    "am-adam": grid(lr=SMALL),
    "adam": grid(lr=SMALL),
    "adam, hidden layers frozen": grid(lr=SMALL),
    "sgd": grid(lr=[1e-4, 1e-3, 1e-2, 1e-1], momentum=[0.0, 0.9]),
    "falling-sgd": grid(lr=[0.03, 0.1, 0.3], batches=[1.0, 3.0, 10.0, 30.0]),
    "replay": grid(lr=[3e-4, 1e-3, 3e-3, 1e-2]),
    "ewc": grid(strength=[1e1, 1e2, 1e3, 1e4, 1e5], lr=[1e-4, 1e-3]) + grid(strength=[1e3, 1e4], lr=[3e-5]),
    "slda": grid(shrinkage=[1e-4, 1e-3, 1e-2, 1e-1, 0.3, 0.5]),
    "am-mem-fitted": grid(
        forget=[1.0], lr=[1e-5, 1e-4, 1e-3], rate=[10.0, 30.0, 100.0, 300.0], damping=[30.0], steps=[None, 1]
    )
    + grid(**FITTED, rate=[30.0, 100.0], damping=[3.0, 10.0, 100.0])
    + grid(forget=[0.99, 0.9], lr=[1e-4], rate=[30.0, 300.0], damping=[30.0], steps=[None]),
    "am-mem-printed": grid(lr=[3e-4, 1e-3, 1e-2, 0.1], code_lr=[0.3, 3.0], mu=[0.003, 0.03]),
}
PERMUTED: dict[str, list[Options]] = {  # a run takes five times as long, so fewer are tried
    "am-adam": grid(lr=[1e-4, 3e-4, 1e-3]),
    "adam": grid(lr=[1e-4, 3e-4, 1e-3]),
    "adam, hidden layers frozen": grid(lr=[3e-4, 1e-3, 3e-3]),
    "sgd": grid(lr=[1e-2, 1e-1, 0.3], momentum=[0.0]) + grid(lr=[1e-3, 1e-2], momentum=[0.9]),
    "falling-sgd": grid(lr=[0.1, 0.3], batches=[10.0, 100.0, 300.0]),
    "replay": grid(lr=[3e-4, 1e-3, 3e-3, 1e-2]),
    "ewc": grid(strength=[1.0, 3.0, 1e1, 1e2, 1e3, 1e4], lr=[1e-3]) + grid(strength=[1e3], lr=[1e-4]),
    "slda": grid(shrinkage=[1e-3, 1e-2, 1e-1]),
    "am-mem-fitted": grid(**FITTED, rate=[30.0, 100.0, 300.0], damping=[10.0])
    + grid(forget=[1.0], lr=[1e-4], rate=[100.0], damping=[30.0], steps=[None, 1])
    + grid(forget=[0.9], lr=[1e-4], rate=[30.0, 300.0], damping=[30.0], steps=[None]),
    "am-mem-printed": grid(lr=[1e-3, 1e-2, 0.1], code_lr=[0.3, 3.0], mu=[0.01]),
}


def tried(name: str, sequence: str, options: Options) -> Stream:
    learner, _, frozen = name.partition(", ")
    model = "linear" if learner == "slda" else "mlp-2x100"
    few: Options = {"seeds": 1, "limit": 10_000} if sequence == "permuted" else {"seeds": 2}
    return Stream(learner, sequence, options, model, freeze_hidden=bool(frozen), part="validation", label=name, **few)


SEARCH = [
    tried(name, sequence, options)
    for sequence, each in (("split", SPLIT), ("permuted", PERMUTED))
    for name, grids in each.items()
    for options in grids
]
FIGURES = [
    Figure(
        *("continual_options", "Tasks in sequence: sizes of mini-batches, and options on validation data"),
        [*(run for runs in BATCHES.values() for run in runs), *SEARCH],
        axes=(),
        minutes=120,
    )
]


@table("continual.batches")
def batches() -> str:
    lines = []
    for name, runs in BATCHES.items():
        found = [[row["average_accuracy"] or 0.0 for row in results("continual_options").all(run)] for run in runs]
        lines.append([name, *(words(each) for each in found)])
    return markdown(["learner", *(f"batches of {size:,}" for size in SIZES)], lines)


@table("continual.accuracy")
def accuracy() -> str:
    """Of the figure: accuracy, forgetting and what is kept between batches."""
    found, cells = results("continual"), dict[str, list[str]]()
    for run in CONTINUAL.runs:
        rows = found.all(run)
        each = ([row.get(name, 0.0) for row in rows] for name in ("average_accuracy", "forgetting"))
        kept = f"{rows[0]['bytes']['memory'] / 1e6:.2f}"
        cells.setdefault(run.name, [run.name, kept]).extend(map(words, each))
    measured = [f"{panel}, {what}" for panel in CONTINUAL.panels for what in ("accuracy", "forgetting")]
    return markdown(["learner", "MB kept", *measured], list(cells.values()))


def average(name: str, sequence: str) -> float:
    """The mean accuracy of a learner of the figure."""
    run = next(run for run in CONTINUAL.runs if (run.name, run.sequence) == (name, sequence))
    return mean(row.get("average_accuracy", 0.0) for row in results("continual").all(run))


@table("continual.short")
def short() -> str:
    """Of some learners the average accuracy on both sequences."""
    shown = (KEPT, OUTPUT, GAUSS_NEWTON, RIDGE, "replay", "streaming LDA", "Adam")
    lines = [[name, *(f"{average(name, sequence):.3f}" for sequence in ("split", "permuted"))] for name in shown]
    return markdown(["learner", "split MNIST", "permuted MNIST"], lines)
