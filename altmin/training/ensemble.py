"""`fit_ensemble`: the training loop for all members of an ensemble, each with its own order of the data and rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from altmin.common.errors import Diverged
from altmin.runners.ensemble import Ensemble
from altmin.runners.recorded import Recorded
from altmin.training import augment as augmentation
from altmin.training import metrics as named
from altmin.training.callbacks import Callbacks
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


def fit_ensemble(
    ensemble: Ensemble | Recorded,
    train: Any,
    test: Any = None,
    *,
    epochs: int,
    batch_size: int | None = None,
    epoch_batches: int | None = None,
    seeds: Sequence[int] | None = None,
    metrics: named.Given = None,
    eval_batches: Sequence[int] = (),
    callbacks: Sequence[Any] | Callable[[EnsembleProgress], Any] | None = None,
    schedule: str = "constant",
    warmup: int = 0,
    augment: augmentation.Given = None,
) -> list[MemberHistory]:
    """What `fit` does, for every member at once: one history for each, with the rows that `fit` would have given.

    `seeds` are the members' own and give the order in which each sees the data, as in `fit`; 0, 1, 2, ... if not given.
    Batches of an iterable are the same for all. A member's `seconds` are its share: those of the ensemble over the
    number of members. Members that diverge stop there and do not hinder the others; if all do, the run ends. Callbacks
    get an `EnsembleProgress` and stop all members together; those that follow one model are refused.
    """
    members = len(ensemble)
    seeds = range(members) if seeds is None else list(seeds)
    if len(seeds) != members:
        raise ValueError(f"there are {members} members but {len(seeds)} seeds; give one for each")
    hooks = Callbacks(callbacks)
    hooks.demand_many()
    histories = [MemberHistory() for _ in seeds]
    steps_before = ensemble.steps
    plan = Plan(
        train=train,
        test=test,
        epochs=epochs,
        batch_size=batch_size,
        epoch_batches=epoch_batches,
        eval_batches=eval_batches,
        schedule=schedule,
        warmup=warmup,
        metrics=metrics,
        augment=augment,
    )
    loop = Loop(ensemble, histories, seeds, plan, hooks)

    def note_diverged() -> None:
        for i, step in loop.diverged.items():
            place = loop.place(step - steps_before) if step > steps_before else "an earlier run"
            histories[i].diverged = str(Diverged(f"the loss or a weight in {place}"))

    def progress() -> EnsembleProgress:
        losses = loop.means
        if loop.at.batch == 0:
            rows = [history.epochs[-1:] for history in histories]
            losses = [
                mean if mean != mean or not row else row[0]["train_loss"]
                for mean, row in zip(losses, rows, strict=True)
            ]
        return EnsembleProgress(
            batch=loop.number,
            batches=loop.batches,
            epoch=loop.at.epoch,
            epochs=epochs,
            train_losses=losses,
            columns=loop.columns,
            histories=histories,
        )

    def after_batch() -> None:
        note_diverged()
        for kept in (True, False):
            loop.stopped |= hooks.batch_end(progress, kept)

    def after_epoch() -> None:
        for kept in (True, False):
            loop.stopped |= hooks.epoch_end(progress(), kept)

    with loop.schedule.during():
        try:
            hooks.start(progress())
            loop.run(after_batch, after_epoch)
            hooks.end(progress())
        except Diverged:
            loop.read()
            if loop.active:
                raise
        finally:
            hooks.close()
    note_diverged()
    return histories
