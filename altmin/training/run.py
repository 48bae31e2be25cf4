"""`fit` and `fit_ensemble`: a run of a method, or of many at once, over the data."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from altmin.methods.protocol import Method, demand_method
from altmin.runners.ensemble import Ensemble
from altmin.runners.ranks import ranks_of
from altmin.runners.recorded import Recorded, recorded
from altmin.training.callbacks import Callbacks
from altmin.training.checkpoint import CheckpointFile
from altmin.training.config import OF_BATCHES, RunConfig, takes
from altmin.training.loop import History, Loop, MemberHistory, Single
from altmin.training.plan import Plan
from altmin.training.resumed import settings_of


@takes("seed", *OF_BATCHES, "scheduler", "scheduler_every", "checkpoint", "checkpoint_every", "resume", "record")
def fit(
    method: Method,
    train: Any,
    test: Any = None,
    *,
    epochs: int,
    callbacks: Any = None,
    config: Mapping[str, Any] | None = None,
    **settings: Any,
) -> History:
    """Train `method.model` in place for `epochs` passes over `train` and return what was measured on the way.

    `train` is a pair of tensors or arrays, a Dataset, a DataLoader or another iterable of batches (x, y). The first two
    are divided into batches of `batch_size`, in an order that depends on `seed` and the epoch alone: not on the method,
    the evaluations or the global random state. A smaller last batch is used too; only if it is a single sample and the
    model has batch norm, which cannot learn from one, is it left out of that epoch. Batches of an iterable come as they
    are, `epoch_batches` of them in an epoch if that is given; an iterator goes on in the next epoch where it was.

    After each epoch and after the batches of `eval_batches` (counted from 1 over the whole run), `metrics` are measured
    on `test`, which is what `train` can be, or a dict of such by name. A metric is a name ("accuracy", "top5", "loss",
    "mse", "rmse", "mae", "r2") or a function (output, y) of all test samples at once; there may be several, in a list
    or by name in a dict. Its column is "test_accuracy", with the name of that part of `test`. Without `metrics` it is
    the accuracy, or for targets of a floating type the mean of the method's own loss; where each sample has several
    labels, as a sequence of tokens has, it is both. Training finds each layer in the mode, training or not, in which it
    was given. `train_loss` is the mean of the steps' losses; `seconds` leave out evaluations and checkpoints.

    `callbacks` are functions of the `Progress`, called after every epoch, or objects (`altmin.training.callbacks`):
    `EarlyStopping`, `BestWeights`, `EMA`, `TensorBoard`, `ProgressBar`, `EachBatch`. One that returns True stops the
    run.

    `augment` changes the samples of each training batch before its step: "crop-flip" (`altmin.data.CropFlip`),
    "random-windows" of a text (`altmin.data.RandomWindows`), an object with `draw` and `apply` as theirs, or a function
    (x, generator) -> x, on the device, that draws from the generator alone. The generator depends on seed, epoch and
    batch, so a run that goes on sees the same samples.

    `schedule` is one of `SCHEDULES` and moves the learning rate after each batch; with "/epoch" added, as in
    "cosine/epoch", after each epoch, as suits an offline method. `warmup` is the number of batches, or epochs, in which
    the rate first rises to the optimizer's own (`altmin.training.schedule.Schedule`). Instead of both, `scheduler` is
    one of torch's on `method.optimizer`, or a function (optimizer) -> scheduler, stepped after each epoch or, with
    `scheduler_every="batch"`, after each batch; `ReduceLROnPlateau` gets the first column that is measured. Afterwards
    the optimizer has its first rate again, unless the scheduler was made by the caller.

    `precision` is that of products: "float32", "tf32" on a GPU, or "bf16" (`altmin.runners.precision.using`); None
    leaves torch's own settings as they are.

    `record`: on a GPU, whether steps are recorded as a CUDA graph and replayed (`altmin.Recorded`), which launches them
    many times as fast. None is for wherever that changes nothing but the time: of models and losses whose code is
    torch's or altmin's, or that were traced; batches of another shape take the ordinary step. True is for compiled
    kernels in addition, and raises ValueError where steps cannot be recorded.

    `checkpoint` is a file in which the run is kept at its start, after each epoch and, given
    `checkpoint_every`, also after that many batches. With `resume` the run continues from there to the same
    parameters, bit for bit, as if it had never stopped; that takes the same number of threads, and on a GPU
    algorithms that are deterministic. A run over an iterable is kept at the ends of epochs only, and is the same if the
    iterable gives the same batches in each epoch, or draws them from torch's random state or a DataLoader's generator.
    The checkpoint must come from the same run: of the same method, code
    solver, weight rule, penalty, loss, model, precision and data, each with all options, and with what the caller
    puts into `config`. Data are distinguished by their number, shapes, types and 64 of the samples, functions by
    their names, objects by their `repr`. A file that is damaged, or of another run, is a `ValueError` that says
    how, and nothing changes.

    A method that is `Distributed` is trained by all its ranks, which each call `fit` with the same arguments and get
    the same history, but for the seconds, and the same weights as one process. A rank takes only its own rows out of
    tensors or a Dataset, unless they are augmented, the method keeps variables of each sample or the Dataset
    draws from torch's random state; of an iterable every rank takes all batches, which must be the same. All ranks
    evaluate; the first one writes the checkpoint, and all read it, so that it must lie where each can. A run may go on
    with any number of ranks, or none: with another number sums have another order, and agree up to rounding.

    A run whose loss or parameters are not finite, or whose loss explodes (`altmin.training.explosion`), stops with
    `Diverged`; a state that is not finite is not saved.
    """
    return fit_one(Plan(RunConfig(epochs=epochs, **settings), train, test), method, History(), callbacks, config or {})


@takes(*OF_BATCHES)
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
    """What `fit` does, for every member at once: one history for each, with the rows that `fit` would have given.

    `seeds` are the members' own and give the order in which each sees the data, as in `fit`; 0, 1, 2, ... if not given.
    Batches of an iterable are the same for all. A member's `seconds` are its share: those of the ensemble over the
    number of members. Members that diverge stop there and do not hinder the others; if all do, the run ends. Callbacks
    get a `Progress` and stop all members together; those that follow one model are refused.
    """
    return fit_members(Plan(RunConfig(epochs=epochs, **settings), train, test), ensemble, seeds, callbacks)


def fit_one(plan: Plan, method: Method, history: History, callbacks: Any, config: Mapping[str, Any]) -> History:
    """`fit`, of a plan. Rows are added to `history`, which is returned."""
    demand_method("fit", method)
    steps: Any = method
    if not isinstance(method, Recorded):
        steps = recorded(method, plan.run.record, plan.run.batch_size, lambda: plan.steps(method.model))
    try:
        _carry_out(plan, Single(steps), [history], [plan.run.seed], callbacks, config)
    finally:
        if isinstance(steps, Recorded):
            steps.settle()
    return history


def fit_members(plan: Plan, ensemble: Any, seeds: Sequence[int] | None, callbacks: Any = None) -> list[MemberHistory]:
    """`fit_ensemble`, of a plan."""
    members = len(ensemble)
    seeds = range(members) if seeds is None else seeds
    if len(seeds) != members:
        raise ValueError(f"there are {members} members but {len(seeds)} seeds; give one for each")
    Callbacks(callbacks).demand_many()
    histories = [MemberHistory() for _ in seeds]
    _carry_out(plan, ensemble, histories, seeds, callbacks, {})
    return histories


def _carry_out(
    plan: Plan,
    trained: Any,
    histories: Sequence[History],
    seeds: Sequence[int],
    callbacks: Any,
    config: Mapping[str, Any],
) -> None:
    """A run of an `Ensemble` or a `Single`. Rows are added to the histories."""
    run, ranks = plan.run, ranks_of(trained.methods[0])
    with ExitStack() as during:
        context = during.enter_context(plan.products())
        loop = Loop(trained, histories, seeds, plan, Callbacks(callbacks, ranks.rank == 0), context, ranks)
        loop.data.demand_whole(ranks.size)
        during.enter_context(loop.schedule.during())
        identity = {} if run.checkpoint is None else _identity(loop, config)
        loop.file = CheckpointFile(run.checkpoint, run.checkpoint_every, identity)
        _check_file(loop)
        same = "the ranks were given different data, seeds or batch sizes; give all the same"
        ranks.check_same((loop.seeds, loop.data.settings()), same)
        loop.file.demand_place(ranks.total(loop.file.exists)[0], ranks.size, run.resume)
        loop.run(run.resume)
        ranks.total(0.0)  # waits until all ranks have come here


def _identity(loop: Loop, config: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    """What must be the same for a run to go on from its checkpoint: what the caller says, and the run's settings."""
    named = {"caller": config, "run": settings_of(loop)}
    return {(by, name): value for by, settings in named.items() for name, value in settings.items()}


def _check_file(loop: Loop) -> None:
    """ValueError for a run over an iterable that could not go on from its checkpoints."""
    if loop.data.resumes:
        return
    if loop.file.every is not None:
        raise ValueError("a run over an iterable is kept at the ends of epochs only; leave out checkpoint_every")
    if loop.file.path is not None and getattr(loop.data.source, "once", False):
        raise ValueError("an iterator cannot begin again at a checkpoint; give a list, a Dataset or a DataLoader")
