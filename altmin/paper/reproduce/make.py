"""Makes the measurements of a figure that are missing, and keeps each as soon as it is done."""

from altmin.paper.reproduce.figure import Figure
from altmin.paper.reproduce.measurement import Measurement, Setting, Tick
from altmin.paper.reproduce.results import Results


def make(figure: Figure, results: Results, setting: Setting, tick: Tick) -> list[str]:
    """Makes what is not in the results yet. On a GPU all seeds of a run are made together, elsewhere they are kept one
    by one; interrupted, it goes on with what was under way. Returns what could not be made here, and why."""
    missing = [(run, run.lacking(setting)) for run in figure.runs if results.missing(run)]
    todo = [(run, seeds) for run, why in missing if not why for seeds in _parts(results.missing(run), setting)]
    for n, (run, seeds) in enumerate(todo):
        if not set(seeds) & set(results.missing(run)):  # made by another with the same config
            continue

        def shown(done: int, total: int, text: str, n: int = n, run: Measurement = run) -> None:
            tick(round(1000 * (n + done / total)), 1000 * len(todo), f"{run.panel}, {run.name}")

        rows = run.make(seeds, setting, shown)
        results.add([{"config": run.config(), "environment": dict(setting.environment), **row} for row in rows])
    return [f"{run.panel}, {run.name}: {why}" for run, why in missing if why]


def _parts(seeds: list[int], setting: Setting) -> list[list[int]]:
    if setting.device.type == "cuda":
        return [seeds] if seeds else []
    return [[seed] for seed in seeds]
