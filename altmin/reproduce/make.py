"""Makes the runs of a figure that are missing, and keeps each as soon as it is done."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from altmin import data
from altmin.execution import precision
from altmin.fit.identity import fingerprint
from altmin.fit.samples import Samples
from altmin.fit.trial import Job, Tick, Trial
from altmin.reproduce.figure import Figure, Run
from altmin.reproduce.results import Results


def make(
    figure: Figure,
    results: Results,
    device: torch.device,
    environment: Mapping[str, Any],
    data_dir: Path | None,
    tick: Tick,
) -> None:
    """Trains what is not in the results yet; interrupted, it goes on with the run that was under way."""
    todo = [(run, seeds) for run in figure.runs if (seeds := results.missing(run))]
    loaded: dict[Any, tuple[Samples, Samples]] = {}
    for n, (run, seeds) in enumerate(todo):
        key = run.data, run.limit
        if key not in loaded:
            loaded.clear()  # one data set at a time
            x, y = (part[: run.limit].to(device) for part in data.load(run.data, "train", data_dir))
            test = tuple(part.to(device) for part in data.load(run.data, "test", data_dir))
            loaded[key] = (x, y), (test[0], test[1])

        def shown(done: int, total: int, text: str, n: int = n, run: Run = run) -> None:
            tick(round(1000 * (n + done / total)), 1000 * len(todo), f"{run.panel}, {run.name}")

        results.add(_rows(run, seeds, *loaded[key], device, environment, shown))


def _rows(
    run: Run,
    seeds: list[int],
    train: Samples,
    test: Samples,
    device: torch.device,
    environment: Mapping[str, Any],
    tick: Tick,
) -> list[dict[str, Any]]:
    trial = Trial(
        *(run.data, train, test, "test", run.model, run.epochs, run.batch_size, run.schedule, run.freeze_first),
        *("float32", device),
        eval_batches=run.eval_batches,
    )
    with precision.using("float32"):
        rows = trial.run_seeds([Job(run.method, dict(run.options), seed) for seed in seeds], tick)
    about = {"environment": dict(environment), "data": fingerprint(train), "rows": len(train[0])}
    return [{"config": run.config(), **about, **row} for row in rows]
