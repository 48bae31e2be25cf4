"""`fit_ensemble`: the training loop for all members of an ensemble, each with its own order of the data and rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from altmin.errors import Diverged
from altmin.execution.ensemble import Ensemble
from altmin.execution.recorded import Recorded
from altmin.training.augment import Given
from altmin.training.evaluate import Evaluation
from altmin.training.loop import History, Loop
from altmin.training.samples import Samples


@dataclass
class MemberHistory(History):
    """A member's rows; if it has diverged, those before, and what `fit` would have said."""

    diverged: str | None = None


@dataclass(frozen=True)
class EnsembleProgress:
    """What `report` gets after each batch: which of how many, every member's mean loss in this epoch (not a number if
    it has diverged) and its rows."""

    batch: int
    batches: int
    train_losses: list[float]
    histories: list[MemberHistory]

    @property
    def train_loss(self) -> float:
        """The mean over the members that take part."""
        return fmean([loss for loss in self.train_losses if loss == loss] or [float("nan")])


def fit_ensemble(
    ensemble: Ensemble | Recorded,
    train: Samples,
    test: Samples | None = None,
    *,
    epochs: int,
    batch_size: int,
    seeds: Sequence[int] | None = None,
    eval_batches: Sequence[int] = (),
    schedule: str = "constant",
    warmup: int = 0,
    measure: str | None = None,
    evaluate: Evaluation | None = None,
    augment: Given = None,
    report: Callable[[EnsembleProgress], None] | None = None,
) -> list[MemberHistory]:
    """What `fit` does, for every member at once: one history for each, with the rows that `fit` would have given.

    `seeds` are the members' own and give the order in which each sees the data, as in `fit`; 0, 1, 2, ... if not given.
    A member's `seconds` are its share: those of the ensemble over the number of members. Members that diverge stop
    there and do not hinder the others; if all do, the run ends.
    """
    members = len(ensemble)
    seeds = range(members) if seeds is None else list(seeds)
    if len(seeds) != members:
        raise ValueError(f"there are {members} members but {len(seeds)} seeds; give one for each")
    histories = [MemberHistory() for _ in seeds]
    steps_before = ensemble.steps
    loop = Loop(
        ensemble,
        histories,
        seeds,
        train,
        test,
        epochs,
        batch_size,
        eval_batches,
        schedule,
        evaluate,
        measure,
        augment,
        warmup,
    )

    def note_diverged() -> None:
        for i, step in loop.diverged.items():
            place = loop.place(step - steps_before) if step > steps_before else "an earlier run"
            histories[i].diverged = str(Diverged(f"the loss or a weight in {place}"))

    def after_batch() -> None:
        note_diverged()
        if report:
            report(EnsembleProgress(loop.number, epochs * loop.per_epoch, loop.means, histories))

    try:
        loop.run(after_batch)
    except Diverged:
        loop.read()
        if loop.active:
            raise
    note_diverged()
    return histories
