"""Trials in harnesses that others wrote: LightBench's problems for optimizers, river's tracks, Avalanche's split MNIST
and CapyMOA's streams. Each harness has its own data, loop and measure; `PACKAGES` are imported when a trial runs."""

from dataclasses import dataclass
from importlib.metadata import version
from statistics import geometric_mean, mean
from typing import Any

from reproduction.case import Case
from reproduction.figure import Figure
from reproduction.harnesses.lightbench import OPTIMIZERS, PROBLEMS, RATES, STEPS, optimize
from reproduction.harnesses.packages import harness
from reproduction.harnesses.streams import DEEP, MOA, NEIGHBOURS, OURS, RIVER, STREAMS, TRACKS, prequential, progressive
from reproduction.harnesses.tasks import LEARNERS, in_tasks
from reproduction.measurements import results
from reproduction.results import Row, Setting, words
from reproduction.tables import markdown, table

PACKAGES = {
    "lightbench": "lightbench.utils",
    "river": "river.evaluate",
    "deep-river": "deep_river",
    "avalanche-lib": "avalanche.training.supervised",
    "capymoa": "capymoa.stream.generator",
}
"""By the name of a package, the module that shows whether it can be imported."""


@dataclass(frozen=True)
class Trial(Case):
    """A case that needs the package of its setting "package"."""

    def lacking(self, setting: Setting) -> str:
        try:
            harness(PACKAGES[self["package"]])
        except ModuleNotFoundError as error:
            return str(error)
        return super().lacking(setting)

    def make(self, *args: Any) -> list[Row]:
        return [{**row, "version": version(self["package"])} for row in super().make(*args)]


LIGHTBENCH = [
    Trial(
        optimize,
        {"package": "lightbench", "problem": problem, "level": level, **STEPS},
        {"optimizer": optimizer, "lr": lr},
        seeds=2 if level == "trivial" else 1,
        small={"steps": 64},
    )
    for problem, level in PROBLEMS
    for optimizer in OPTIMIZERS
    for lr in RATES
]
TRACKED = [
    Trial(
        progressive,
        {"package": "deep-river" if name in DEEP else "river", "data": data},
        {"model": name},
        seeds=3 if name in OURS else 1,
    )
    for data in TRACKS
    for name in (*RIVER, NEIGHBOURS, *DEEP)
]
TASKS = [
    Trial(in_tasks, {"package": "avalanche-lib", "limit": None}, {"learner": name, **options}, small={"limit": 2000})
    for name, (_, options) in LEARNERS.items()
]
MOAS = [
    Trial(
        prequential,
        {"package": "capymoa", "stream": stream, "samples": 5000},
        {"model": name},
        seeds=1,
        small={"samples": 100},
    )
    for stream in STREAMS
    for name in ("altmin.stream", *MOA)
]
FIGURES = [Figure("harnesses", "Trials in harnesses of others", [*TRACKED, *TASKS, *MOAS, *LIGHTBENCH], axes=(),
                  minutes=15)]  # fmt: skip


def _rows(case: Case) -> list[Row]:
    return results("harnesses").all(case)


@table("harnesses.lightbench")
def lightbench() -> str:
    """By problem how many of all runs passed, over rates and seeds; below, with some rate, and by rate."""
    runs = {(c["problem"], c["level"], *c.options.values()): [r["passed"] for r in _rows(c)] for c in LIGHTBENCH}

    def passed(optimizer: str, chosen: Any, rates: Any = RATES) -> str:
        found = [one for problem in chosen for lr in rates for one in runs[*problem, optimizer, lr]]
        return f"{sum(found)} of {len(found)}"

    def solved(optimizer: str) -> str:
        found = [any(one) for p in PROBLEMS for one in zip(*(runs[*p, optimizer, lr] for lr in RATES), strict=True)]
        return f"**{sum(found)} of {len(found)}**"

    lines = [[f"`{name}`, {level}", *(passed(o, [(name, level)]) for o in OPTIMIZERS)] for name, level in PROBLEMS]
    lines.append(["**solved with some rate**", *map(solved, OPTIMIZERS)])
    lines.append(["all runs", *(passed(o, PROBLEMS) for o in OPTIMIZERS)])
    lines += [[f"rate {lr:g}", *(passed(o, PROBLEMS, [lr]) for o in OPTIMIZERS)] for lr in RATES]
    return markdown(["problem", *OPTIMIZERS], lines)


@table("harnesses.river")
def river() -> str:
    """Accuracy, or mean absolute error, and the time of a sample over that of the linear model, the geometric mean."""
    cases = {(c.options["model"], c["data"]): _rows(c) for c in TRACKED}
    lines = []
    for name in dict.fromkeys(name for name, _ in cases):
        ratios = [mean(r["microseconds"] for r in cases[name, data]) / cases["linear", data][0]["microseconds"]
                  for data in TRACKS]  # fmt: skip
        scores = [words([r["value"] for r in cases[name, data]]) for data in TRACKS]
        lines.append([name, *scores, f"{geometric_mean(ratios):.0f}"])
    return markdown(["model", *TRACKS, "time / linear"], lines)


@table("harnesses.avalanche")
def avalanche() -> str:
    lines = []
    for case in TASKS:
        scores = [words([row[name] for row in _rows(case)]) for name in ("accuracy", "forgetting")]
        lines.append([case.options["learner"], *scores])
    return markdown(["learner", "accuracy", "forgetting"], lines)


@table("harnesses.capymoa")
def capymoa() -> str:
    """Accuracy by stream, and microseconds a sample, the mean over streams."""
    cases = {(c.options["model"], c["stream"]): _rows(c)[0] for c in MOAS}
    lines = []
    for name in dict.fromkeys(name for name, _ in cases):
        seconds = mean(cases[name, stream]["seconds"] for stream in STREAMS) / MOAS[0]["samples"]
        scores = [f"{cases[name, stream]['value']:.3f}" for stream in STREAMS]
        lines.append([name, *scores, f"{1e6 * seconds:.0f}"])
    return markdown(["model", *STREAMS, "microseconds a sample"], lines)
