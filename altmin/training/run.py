"""`fit` and `fit_ensemble`: a run of a method, or of many at once, over the data."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from altmin.common import precision
from altmin.methods.protocol import Method
from altmin.runners.ensemble import Ensemble
from altmin.runners.ranks import ranks_of
from altmin.runners.recorded import Recorded, recorded
from altmin.training.config import NAMED, RunConfig
from altmin.training.loop import History, Loop, MemberHistory, Single

OF_ONE = ("seed", "scheduler", "checkpoint", "checkpoint_every", "resume", "record")
"""The settings that an ensemble does not have."""


def fit(
    method: Method, train: Any, test: Any = None, *, epochs: int, callbacks: Any = None, **settings: Any
) -> History:
    """Train `method.model` in place for `epochs` passes over `train` and return what was measured on the way.

    settings: `seed`, `batch_size`, `metrics`, `eval_batches`, `augment`, `schedule`, `warmup`, `scheduler`,
    `precision`, `record`, `checkpoint`, `checkpoint_every` and `resume`, the fields of
    `altmin.training.config.RunConfig`.

    `train` is a pair of tensors or arrays, a DataLoader or another iterable of batches (x, y). Tensors and arrays are
    divided into batches of `batch_size`, in an order that depends on `seed` and the epoch alone: not on the method, the
    evaluations or the global random state. A smaller last batch is used too; only if it is a single sample and the
    model has batch norm, which cannot learn from one, is it left out of that epoch. Batches of an iterable come as they
    are.

    After each epoch and after the batches of `eval_batches` (counted from 1 over the whole run), `metrics` are measured
    on `test`, which is what `train` can be, or a dict of such by name. A metric is a name ("accuracy", "top5", "loss",
    "mse", "rmse", "mae", "r2") or a function (output, y) of all test samples at once; there may be several, in a list
    or by name in a dict. Its column is "test_accuracy", with the name of that part of `test`. Without `metrics` it is
    the accuracy, or for targets of a floating type the mean of the method's own loss; where each sample has several
    labels, as a sequence of tokens has, it is both. Training finds each layer in the mode, training or not, in which it
    was given. `train_loss` is the mean of the steps' losses; `seconds` leave out evaluations and checkpoints.

    `callbacks` are functions of the `Progress`, called after every epoch, or objects (`altmin.training.callbacks`):
    `EarlyStopping`, `BestWeights`, `EMA`, `ProgressBar`, `EachBatch`. One that returns True stops the run.

    `augment` changes the samples of each training batch before its step: "crop-flip" (`altmin.data.CropFlip`),
    "random-windows" of a text (`altmin.data.RandomWindows`), an object with `draw` and `apply` as theirs, or a function
    (x, generator) -> x, on the device, that draws from the generator alone. The generator depends on seed, epoch and
    batch, so a run that goes on sees the same samples.

    `schedule` is one of `SCHEDULES` and moves the learning rate after each batch; with "/epoch" added, as in
    "cosine/epoch", after each epoch, as suits an offline method. The default, "auto", is "decay": the rate falls to 0
    in the last two fifths of the run; "constant" leaves it, and such a run may be prolonged. `warmup` is the number of
    batches, or epochs, in which the rate first rises to the optimizer's own (`altmin.training.schedule.Schedule`).
    Afterwards the optimizer has its first rate again. Instead of both, `scheduler` is one of torch's on
    `method.optimizer`, or a function (optimizer) -> scheduler, stepped after each epoch; `ReduceLROnPlateau` gets the
    first column that is measured.

    `precision` is that of products: "float32", "tf32" on a GPU, or "bf16" (`altmin.common.precision.using`); None
    leaves torch's own settings as they are.

    `record`: whether steps are recorded and replayed (`altmin.Recorded`), which launches them many times as fast. None
    is for wherever that changes nothing but the time; True raises ValueError where steps cannot be recorded.

    `checkpoint` is a file in which the run is saved at its start, after each epoch and, given `checkpoint_every`, also
    after that many batches. With `resume` the run continues from there to the same parameters, bit for bit, as if it
    had never stopped; that takes the same number of threads, and on a GPU algorithms that are deterministic. A run over
    an iterable is saved at the ends of epochs only, and is the same if the iterable gives the same batches in each
    epoch, or draws them from torch's random state. The checkpoint must come from the same run: of the same method, code
    solver, weight rule, penalty, loss, model, precision and data, each with all options. Data are distinguished by
    their number, shapes, types and 64 of the samples, functions by their names, objects by their `repr`. A file that is
    damaged, or of another run, is a `ValueError` that says how, and nothing changes.

    A method that is `Distributed` is trained by all its ranks, which each call `fit` with the same arguments and get
    the same history, but for the seconds, and the same weights as one process. A rank takes only its own rows out of
    tensors, unless they are augmented or the method keeps variables of each sample; of an iterable every rank takes all
    batches, which must be the same. All ranks evaluate; the first one writes the checkpoint, and all
    read it, so that it must lie where each can. A run may go on with any number of ranks, or none: with another number
    sums have another order, and agree up to rounding.

    A run whose loss or parameters are not finite, or whose loss explodes (`altmin.training.explosion`), stops with
    `Diverged`; a state that is not finite is not saved.
    """
    return fit_one(_config("fit", epochs, settings, NAMED), (train, test), method, History(), callbacks)


def fit_ensemble(
    ensemble: Ensemble | Recorded,
    train: Any,
    test: Any = None,
    *,
    epochs: int,
    seeds: Sequence[int] | None = None,
    callbacks: Any = None,
    **settings: Any,
) -> list[MemberHistory]:
    """Run `fit` for every member at once: one history for each, with the rows that `fit` would have given.

    `seeds` are the members' own and give the order in which each sees the data, as in `fit`; 0, 1, 2, ... if not given.
    Batches of an iterable are the same for all. A member's `seconds` are its share: those of the ensemble over the
    number of members. Members that diverge stop there and do not hinder the others; if all do, the run ends. Callbacks
    get a `Progress` and stop all members together; those that follow one model are refused. settings: those of `fit`
    but for seed, scheduler, checkpoints and record.
    """
    run = _config("fit_ensemble", epochs, settings, (*NAMED, *OF_ONE))
    return fit_members(run, (train, test), ensemble, range(len(ensemble)) if seeds is None else seeds, callbacks)


def fit_one(run: RunConfig, samples: tuple[Any, Any], method: Method, history: History, callbacks: Any) -> History:
    """Run `fit` by a config. samples: to train and to evaluate on. Rows are added to `history`, which is returned."""
    steps: Any = method if isinstance(method, Recorded) else recorded(method, run.record, run.batch_size)
    try:
        _carry_out(run, samples, Single(steps), [(run.seed, history)], callbacks)
    finally:
        if isinstance(steps, Recorded):
            steps.settle()
    return history


def fit_members(
    run: RunConfig, samples: tuple[Any, Any], ensemble: Any, seeds: Sequence[int], callbacks: Any = None
) -> list[MemberHistory]:
    """Run `fit_ensemble` by a config."""
    if len(seeds) != len(ensemble):
        raise ValueError(f"there are {len(ensemble)} members but {len(seeds)} seeds; give one for each")
    for callback in callbacks if isinstance(callbacks, Sequence) else [callbacks]:
        if getattr(callback, "for_one", False):
            raise ValueError(f"{type(callback).__name__} follows one model, not an ensemble; leave it out, or use fit")
    histories = [MemberHistory() for _ in seeds]
    _carry_out(run, samples, ensemble, list(zip(seeds, histories, strict=True)), callbacks)
    return histories


def _config(function: str, epochs: int, settings: dict[str, Any], others: Sequence[str]) -> RunConfig:
    if wrong := set(settings) & set(others):
        raise TypeError(f"{function} has no setting {', '.join(sorted(wrong))}")
    return RunConfig(epochs=epochs, **settings)


def _carry_out(
    run: RunConfig, samples: tuple[Any, Any], trained: Any, members: Sequence[tuple[int, History]], callbacks: Any
) -> None:
    """Train an `Ensemble` or a `Single`. members: seeds and histories, to which rows are added."""
    with nullcontext() if run.precision is None else precision.using(run.precision):
        loop, ranks = Loop(run, samples, trained, members, callbacks), ranks_of(trained.methods[0])
        settings = loop.seeds, loop.data.per_epoch, loop.data.source.describe()
        ranks.check_same(settings, "the ranks were given different data, seeds or batch sizes; give all the same")
        there = run.checkpoint is not None and Path(run.checkpoint).exists()
        seen = ranks.total(there)[0]
        if run.resume and 0 < seen < ranks.size:
            raise ValueError(f"{seen:g} of {ranks.size} ranks see {run.checkpoint}; put it on a disc that all share")
        if seen and not run.resume:
            raise ValueError(f"{run.checkpoint} exists already: resume from it, or choose another checkpoint file")
        loop.carry_out()
        ranks.total(0.0)  # waits until all ranks have come here
