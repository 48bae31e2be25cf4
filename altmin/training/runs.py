"""Runs of methods by their names on models and data by theirs: what the commands and the reproduction of the paper
train."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch

from altmin import data, methods, models
from altmin.common.errors import Diverged
from altmin.methods.protocol import Method
from altmin.runners.ensemble import Ensemble
from altmin.runners.recorded import recorded
from altmin.training.callbacks import EachBatch
from altmin.training.config import RunConfig
from altmin.training.loop import History, Progress
from altmin.training.run import fit_members, fit_one
from altmin.training.samples import Samples

Row = dict[str, Any]
Tick = Callable[[int, int, str], None]
"""Shows how many of how many batches are done, and what is under way."""


def build(run: RunConfig) -> Method:
    """Return the run's method on its model, whose first weights, and dropout later on, depend on the seed
    alone."""
    known = data.dataset(run.data)
    torch.manual_seed(run.seed)
    model = models.create(run.model, known.sample_shape, known.classes, known.tokens).to(run.device)
    if run.freeze_first:
        models.freeze_first(model)
    return methods.create(run.method, model, **run.options)


def train_run(
    run: RunConfig,
    train: Samples,
    test: Samples,
    callbacks: Sequence[Any] = (),
    wrap: Callable[[Method], Method] = lambda method: method,
) -> tuple[Row, Method]:
    """Train one run, and return its row {"seed", "batches", "epochs"} and the trained method. `test` is measured under
    the name `run.part`. wrap: what the method becomes before, such as `Distributed`. Raises `Diverged`."""
    method, history = wrap(build(run)), History()
    fit_one(run, (train, {run.part: test}), method, history, list(callbacks))
    return {"seed": run.seed, **asdict(history)}, method


def train_runs(
    runs: Sequence[RunConfig],
    train: Samples,
    test: Samples,
    tick: Tick,
    together: bool | None = None,
) -> list[Row]:
    """Train runs that differ in method, options and seed, and return a row for each, as `train_run`; one that diverges
    has the rows so far and, as "diverged", the reason. together: whether runs of one method are trained as an ensemble
    where they can be; None is for on a GPU, of which one run leaves most idle, while it keeps a CPU busy."""
    samples = (train, {runs[0].part: test})
    together = runs[0].device.type == "cuda" if together is None else together
    ensemble = _ensemble(runs) if together else None
    if ensemble is not None:
        callbacks = [EachBatch(lambda at: tick(at.batch, at.batches, f"loss {at.train_loss:.4f}"))]
        histories = fit_members(runs[0], samples, ensemble, [run.seed for run in runs], callbacks)
        rows = [{"seed": run.seed, **asdict(history)} for run, history in zip(runs, histories, strict=True)]
        return [{key: value for key, value in row.items() if value is not None} for row in rows]
    rows = []
    for i, run in enumerate(runs):

        def show(at: Progress, i: int = i, text: str = f"{run.method}, seed {run.seed}") -> None:
            tick(i * (at.batches or 0) + at.batch, len(runs) * (at.batches or 0), text)

        history = History()
        try:
            fit_one(run, samples, build(run), history, [EachBatch(show)])
            diverged = {}
        except Diverged as error:
            diverged = {"diverged": str(error)}
        rows.append({"seed": run.seed, **asdict(history), **diverged})
    return rows


def settings_of(run: RunConfig, train: Samples) -> Row:
    """Return the settings of a run as a result has them, but for method, model and data."""
    names = ("epochs", "batch_size", "schedule", "freeze_first", "precision")
    later = {name: getattr(run, name) for name in ("augment", "warmup") if getattr(run, name)}
    measured = {"evaluated_on": run.part, "eval_batches": run.eval_batches, "train_samples": len(train[0])}
    return {**{name: getattr(run, name) for name in names}, **measured, **later}


def _ensemble(runs: Sequence[RunConfig]) -> Any:
    """Return a member for each run; None if they cannot be trained together."""
    if len(runs) == 1 or len({run.method for run in runs}) > 1:
        return None
    try:
        ensemble = Ensemble([build(run) for run in runs])
    except ValueError:
        return None
    return recorded(ensemble, runs[0].record, runs[0].batch_size)
