"""Runs of methods by their names on a model and data by theirs: what the command line and the figures train."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import nn

from altmin import data, methods, models
from altmin.common.describe import plain
from altmin.common.devices import usable
from altmin.common.errors import Diverged
from altmin.runners.ensemble import Ensemble
from altmin.runners.recorded import recorded
from altmin.training import run as fitting
from altmin.training.callbacks import EachBatch
from altmin.training.config import RunConfig
from altmin.training.loop import History, Progress
from altmin.training.plan import Plan
from altmin.training.samples import Samples, batches_per_epoch

Row = dict[str, Any]
Tick = Callable[[int, int, str], None]
"""Shows how many of how many batches are done, and what is under way."""


class Known(Protocol):
    """What a model is built for: a `Dataset`, or a table of one's own."""

    @property
    def sample_shape(self) -> tuple[int, ...]: ...
    @property
    def classes(self) -> int: ...
    @property
    def tokens(self) -> bool: ...


@dataclass(frozen=True)
class Trial:
    """Runs on the same samples; `test` is the part that `run` names. The runs that its methods are given
    differ from `run` in method, options and seed. wrap: what a method becomes that is not recorded, such as
    `Distributed`. known: the data, if they are not the data set that `run` names."""

    run: RunConfig
    train: Samples
    test: Samples
    wrap: Callable[[methods.Method], methods.Method] = lambda method: method
    known: Known | None = None

    def config(self) -> dict[str, Any]:
        """The settings as a result holds them."""
        run = self.run
        names = ("epochs", "batch_size", "schedule", "freeze_first", "precision")
        later = {name: getattr(run, name) for name in ("augment", "warmup") if getattr(run, name)}
        measured = {"evaluated_on": run.part, "eval_batches": run.eval_batches, "train_samples": len(self.train[0])}
        return {**{name: getattr(run, name) for name in names}, **measured, **later}

    def build(self, run: RunConfig) -> methods.Method:
        """A method on a model whose first weights, and dropout later on, depend on the seed alone."""
        known, device = self.known or data.dataset(run.data), usable("device of a run", run.device)
        torch.manual_seed(run.seed)
        model = models.create(run.model, known.sample_shape, known.classes, known.tokens).to(device)
        if run.freeze_first:
            models.freeze_first(model)
        return methods.create(run.method, model, **run.options)

    def steps(self, method: Any, otherwise: Callable[[Any], Any]) -> Any:
        """A method, or an ensemble, whose steps are recorded if the run says so, or otherwise what is made of it."""
        made = recorded(
            method, self.run.record, self.run.batch_size, lambda: self.run.epochs * self._batches(method.model)
        )
        return otherwise(method) if made is method else made

    def check(self, runs: Sequence[RunConfig]) -> int:
        """The number of batches in an epoch. Builds the method of every run, so that one that refuses this model raises
        before the first run starts."""
        for run in runs:
            model = self.steps(self.build(run), self.wrap).model
        return self._batches(model)

    def _batches(self, model: nn.Module) -> int:
        assert self.run.batch_size is not None
        return batches_per_epoch(model, len(self.train[0]), self.run.batch_size)

    def one(
        self,
        run: RunConfig,
        report: Callable[[Progress], None],
        finished: Callable[[nn.Module], None] = lambda model: None,
        history: History | None = None,
    ) -> Row:
        """One run as a row of a result. finished: gets the trained model. history: where rows are added. Raises
        Diverged."""
        method = self.steps(self.build(run), self.wrap)
        same = {name: getattr(run, name) for name in ("data", "model", "freeze_first", "precision", "method")}
        config = {**same, **plain(run.options)}
        history = fitting.fit_one(self._plan(run), method, history or History(), [EachBatch(report)], config)
        finished(method.model)
        return {"seed": run.seed, **asdict(history)}

    def attempt(self, run: RunConfig, report: Callable[[Progress], None]) -> Row:
        """As `one`; if it diverges, the row has the results so far and, as `diverged`, the reason."""
        history = History()
        try:
            return self.one(run, report, history=history)
        except Diverged as error:
            return {"seed": run.seed, **asdict(history), "diverged": str(error)}

    def in_turn(self, runs: Sequence[RunConfig], tick: Tick) -> list[Row]:
        """A row for each run, one run after the other."""

        def report(i: int) -> Callable[[Progress], None]:
            text = f"{runs[i].method}, seed {runs[i].seed}"
            return lambda at: tick(i * (at.batches or 0) + at.batch, len(runs) * (at.batches or 0), text)

        return [self.attempt(run, report(i)) for i, run in enumerate(runs)]

    def run_seeds(self, runs: Sequence[RunConfig], tick: Tick) -> list[Row]:
        """A row for each run of one method: as an ensemble where that is faster and can be, else in turn."""
        ensemble = self.ensemble(runs) if self.together else None
        if ensemble is None:
            return self.in_turn(runs, tick)
        seeds = [run.seed for run in runs]
        histories = fitting.fit_members(self._plan(self.run), ensemble, seeds, [EachBatch(with_loss(tick))])
        rows = [{"seed": seed, **asdict(history)} for seed, history in zip(seeds, histories, strict=True)]
        return [{key: value for key, value in row.items() if value is not None} for row in rows]

    @property
    def together(self) -> bool:
        """Whether seeds train faster together: one run leaves most of a GPU idle, but keeps a CPU busy."""
        return self.run.device.type == "cuda"

    def ensemble(self, runs: Sequence[RunConfig]) -> Any:
        """A member for each run; None if they cannot be trained together."""
        members = [self.wrap(self.build(run)) for run in runs]
        try:
            ensemble = Ensemble(members)
        except ValueError:
            return None
        return self.steps(ensemble, lambda ensemble: ensemble)

    def _plan(self, run: RunConfig) -> Plan:
        return Plan(run, self.train, {run.part: self.test})


def described(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a method as a result holds them: the learning rate, and the others."""
    others = plain(options)
    return {"lr": others.pop("lr", None), "options": others}


def with_loss(tick: Tick) -> Callable[[Any], None]:
    """Shows how far a run, or an ensemble's, has come, and its loss."""
    return lambda at: tick(at.batch, at.batches, f"loss {at.train_loss:.4f}")
