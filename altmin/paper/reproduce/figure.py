"""A figure: its measurements, which `make` makes, how they are drawn, and what the paper says they show."""

import re
import runpy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from altmin.common.errors import unknown
from altmin.paper.reproduce.claims import Claim
from altmin.paper.reproduce.measurement import Measurement, Setting, Tick
from altmin.paper.reproduce.results import Results
from altmin.paper.reproduce.search import Search

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Mark:
    """A value that the paper states: drawn at x, y in a panel, on the figure's first axis, and named after what
    reached it."""

    panel: str
    x: float
    y: float
    name: str


@dataclass(frozen=True)
class Curve:
    """points: where it was measured, in rising order, and what all seeds came to there."""

    panel: str
    name: str
    points: list[tuple[float, list[float]]]


@dataclass(frozen=True)
class Figure:
    """runs: all measurements. axes: against which they can be drawn, the picture's first. minutes: about how long it
    takes on one H200. measure: what the curves show; it is drawn from `bottom` on. log: which of "x" and "y" have a
    logarithmic scale. searches: how settings are looked for. quick: makes a measurement smaller for `--quick`, or
    leaves it out (None)."""

    name: str
    title: str
    runs: Sequence[Any]
    axes: Sequence[str] = ("epochs", "batches", "seconds")
    minutes: float = 1
    claims: Sequence[Claim] = ()
    marks: Sequence[Mark] = ()
    measure: str = "test accuracy"
    bottom: float | None = None
    log: str = ""
    searches: Sequence[Search] = ()
    quick: Callable[[Any], Measurement | None] = lambda run: run.reduced()

    @property
    def panels(self) -> list[str]:
        return list(dict.fromkeys(run.panel for run in self.runs))

    @property
    def names(self) -> list[str]:
        """Those of the curves, over all panels."""
        return list(dict.fromkeys(run.name for run in self.runs))

    def curves(self, results: Results, axis: str) -> list[Curve]:
        """What the results show, a curve for each panel and name that has points."""
        found: dict[tuple[str, str], dict[float, list[float]]] = {}
        for run in self.runs:
            points = found.setdefault((run.panel, run.name), {})
            seeds = [run.points(row, axis) for row in results.of(run)[: run.seeds]]
            for seed in _in_step(seeds) if axis == "seconds" else seeds:
                for x, y in seed:
                    points.setdefault(x, []).append(y)
        return [Curve(*key, sorted(points.items())) for key, points in found.items() if points]

    def with_results(self, results: Results) -> "Figure":
        """The figure without the panels that have no measurements, unless no panel has any."""
        made = {run.panel for run in self.runs if results.of(run)}
        return replace(self, runs=[run for run in self.runs if run.panel in made or not made])

    def smaller(self) -> "Figure":
        """The figure as `--quick` makes it; it bears on no claim."""
        runs = [small for run in self.runs if (small := self.quick(run)) is not None]
        return replace(self, runs=runs, claims=())


def _in_step(seeds: Sequence[Points]) -> list[Points]:
    """No two seeds take the same time: their first points stand at one place, so do their second ones, and so on,
    which is the mean over the seeds with the most points (one that diverges has fewer)."""
    longest = [points for points in seeds if len(points) == max(map(len, seeds))]
    times = [mean(x for x, _ in each) for each in zip(*longest, strict=True)]
    return [[(time, y) for time, (_, y) in zip(times, points, strict=False)] for points in seeds]


def load(folder: Path) -> dict[str, Figure]:
    """All figures of a folder by name: every Python file in it declares one as FIGURE, but those whose names begin with
    an underscore. The files are executed. ValueError if there are none and, before anything is executed, if one
    declares none: this is another folder."""
    found: dict[str, Figure] = {}
    paths = sorted(folder.glob("[!_]*.py"))
    for path in paths:
        if not re.search(rb"\bFIGURE\b", path.read_bytes()):
            raise ValueError(f"{path} declares no FIGURE, so {folder} is no folder of figures; nothing was executed")
    for path in paths:
        figure = runpy.run_path(str(path))["FIGURE"]
        if not isinstance(figure, Figure) or figure.name != path.stem:
            given = getattr(figure, "name", figure)
            raise ValueError(f"{path} declares figure {given!r}; a file has its figure's name")
        found[figure.name] = figure
    if not found:
        raise ValueError(
            f"there are no figures in {folder}; give as --figures DIR a folder of files that declare one each, as "
            "those of altmin.paper.figures do, or leave it out"
        )
    return found


def choose(figures: Mapping[str, Figure], name: str) -> Figure:
    """A figure by name. Raises ValueError for an unknown one."""
    if name not in figures:
        raise unknown("figure", name, figures)
    return figures[name]


def make(figure: Figure, results: Results, setting: Setting, tick: Tick) -> list[str]:
    """Makes what is not in the results yet. On a GPU all seeds of a run are made together, elsewhere they are kept one
    by one; interrupted, it goes on with what was under way. Returns what could not be made here, and why."""
    missing = [(run, run.lacking(setting)) for run in figure.runs if results.missing(run)]
    together = setting.device.type == "cuda"
    todo = [
        (run, seeds)
        for run, why in missing
        if not why
        for seeds in ([results.missing(run)] if together else [[seed] for seed in results.missing(run)])
    ]
    for n, (run, seeds) in enumerate(todo):
        if not set(seeds) & set(results.missing(run)):  # made by another with the same config
            continue

        def shown(done: int, total: int, text: str, n: int = n, run: Measurement = run) -> None:
            tick(round(1000 * (n + done / total)), 1000 * len(todo), f"{run.panel}, {run.name}")

        rows = run.make(seeds, setting, shown)
        results.add([{"config": run.config(), "environment": dict(setting.environment), **row} for row in rows])
    return [f"{run.panel}, {run.name}: {why}" for run, why in missing if why]
