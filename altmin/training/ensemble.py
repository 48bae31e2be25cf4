"""`fit_ensemble`: the training loop for all members of an ensemble, each with its own order of the data and rows."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from altmin.common.errors import Diverged
from altmin.runners.ensemble import Ensemble
from altmin.runners.recorded import Recorded
from altmin.training.callbacks import Callbacks
from altmin.training.config import OF_BATCHES, RunConfig, takes
from altmin.training.loop import History, Loop
from altmin.training.plan import Plan


@dataclass
class MemberHistory(History):
    """A member's rows; if it has diverged, those before, and what `fit` would have said."""

    diverged: str | None = None


@dataclass(frozen=True)
class EnsembleProgress:
    """What callbacks get: batches and epochs done, and of how many; every member's mean loss in the epoch under way, or
    when it is over in the last one (not a number if it has diverged); its rows, and which columns are measured."""

    batch: int
    batches: int | None
    epoch: int
    epochs: int
    train_losses: list[float]
    columns: Sequence[str]
    histories: list[MemberHistory]

    @property
    def train_loss(self) -> float:
        """The mean over the members that take part."""
        return fmean([loss for loss in self.train_losses if loss == loss] or [float("nan")])


@takes(*OF_BATCHES)
def fit_ensemble(
    ensemble: Ensemble | Recorded,
    train: Any,
    test: Any = None,
    *,
    epochs: int,
    seeds: Sequence[int] | None = None,
    callbacks: Sequence[Any] | Callable[[EnsembleProgress], Any] | None = None,
    **settings: Any,
) -> list[MemberHistory]:
    """What `fit` does, for every member at once: one history for each, with the rows that `fit` would have given.

    `seeds` are the members' own and give the order in which each sees the data, as in `fit`; 0, 1, 2, ... if not given.
    Batches of an iterable are the same for all. A member's `seconds` are its share: those of the ensemble over the
    number of members. Members that diverge stop there and do not hinder the others; if all do, the run ends. Callbacks
    get an `EnsembleProgress` and stop all members together; those that follow one model are refused.
    """
    return carry_out(Plan(RunConfig(epochs=epochs, **settings), train, test), ensemble, seeds, callbacks)


def carry_out(plan: Plan, ensemble: Any, seeds: Sequence[int] | None, callbacks: Any = None) -> list[MemberHistory]:
    """`fit_ensemble`, of a plan."""
    members = len(ensemble)
    seeds = range(members) if seeds is None else list(seeds)
    if len(seeds) != members:
        raise ValueError(f"there are {members} members but {len(seeds)} seeds; give one for each")
    hooks = Callbacks(callbacks)
    hooks.demand_many()
    with ExitStack() as during:
        context = during.enter_context(plan.products())
        run = _Run(Loop(ensemble, [MemberHistory() for _ in seeds], seeds, plan, hooks, context), ensemble.steps)
        during.enter_context(run.loop.schedule.during())
        try:
            hooks.start(run.progress())
            run.loop.run(run.after_batch, run.after_epoch)
            hooks.end(run.progress())
        except Diverged:
            run.loop.read()
            if run.loop.active:
                raise
        finally:
            hooks.close()
    run.note_diverged()
    return run.histories


class _Run:
    """A loop over members with its callbacks. before: the steps that the ensemble had taken."""

    def __init__(self, loop: Loop, before: int):
        self.loop, self.before = loop, before
        self.histories: list[Any] = loop.histories

    def note_diverged(self) -> None:
        for i, step in self.loop.diverged.items():
            place = self.loop.place(step - self.before) if step > self.before else "an earlier run"
            self.histories[i].diverged = str(Diverged(f"the loss or a weight in {place}"))

    def progress(self) -> EnsembleProgress:
        loop, losses = self.loop, self.loop.means
        if loop.at.batch == 0:
            rows = [history.epochs[-1:] for history in self.histories]
            losses = [
                mean if mean != mean or not row else row[0]["train_loss"]
                for mean, row in zip(losses, rows, strict=True)
            ]
        return EnsembleProgress(
            batch=loop.number,
            batches=loop.batches,
            epoch=loop.at.epoch,
            epochs=loop.epochs,
            train_losses=losses,
            columns=loop.columns,
            histories=self.histories,
        )

    def after_batch(self) -> None:
        self.note_diverged()
        for kept in (True, False):
            self.loop.stopped |= self.loop.callbacks.batch_end(self.progress, kept)

    def after_epoch(self) -> None:
        for kept in (True, False):
            self.loop.stopped |= self.loop.callbacks.epoch_end(self.progress(), kept)
