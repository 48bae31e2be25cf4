"""`fit`: one run of a method over the data, which can stop anywhere and go on as if it had not."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torch import nn

from altmin.common.describe import describe
from altmin.common.errors import Diverged
from altmin.methods.protocol import Method
from altmin.training import resumed
from altmin.training.callbacks import Callbacks
from altmin.training.checkpoint import CheckpointFile
from altmin.training.config import OF_BATCHES, RunConfig, takes
from altmin.training.identity import method_settings
from altmin.training.loop import History, Loop, Single
from altmin.training.plan import Plan
from altmin.training.together import Together


@dataclass(frozen=True)
class Progress:
    """What callbacks get: batches and epochs done and, as far as it is known, of how many; the mean loss of the epoch
    under way, or when a row has been written the last one's; the rows so far, and which columns are measured."""

    batch: int
    batches: int | None
    epoch: int
    epochs: int
    train_loss: float
    history: History
    columns: Sequence[str]
    method: Method
    callbacks: Callbacks

    @property
    def row(self) -> dict[str, Any]:
        """The last epoch's."""
        return self.history.epochs[-1]

    @property
    def model(self) -> nn.Module:
        """The one that is trained."""
        return self.method.model

    @property
    def evaluated(self) -> nn.Module:
        """The one that is measured: with `EMA` the averaged one."""
        return self.callbacks.evaluated(self.model)


@takes("seed", *OF_BATCHES, "scheduler", "scheduler_every", "checkpoint", "checkpoint_every", "resume")
def fit(
    method: Method,
    train: Any,
    test: Any = None,
    *,
    epochs: int,
    callbacks: Sequence[Any] | Callable[[Progress], Any] | None = None,
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

    `checkpoint` is a file in which the run is kept at its start, after each epoch and, given
    `checkpoint_every`, after every so many batches. With `resume` it goes on from there to the same
    parameters, bit for bit, as if it had never stopped; that takes the same number of threads, and on a GPU
    algorithms that are deterministic. A run over an iterable is kept at the ends of epochs only, and is the same if the
    iterable gives the same batches in each epoch, or draws them from torch's random state or a DataLoader's generator.
    The checkpoint must come from the same run: of the same method, code
    solver, weight rule, penalty, loss, model, precision and data, each with all options, and with what the caller
    puts into `config`. Data are told apart by their number, shapes, types and 64 of the samples, functions by
    their names, objects by their `repr`. A file that is damaged, or of another run, is a `ValueError` that says
    how, and nothing changes.

    A method that is `Distributed` is trained by all its ranks, which each call `fit` with the same arguments and get
    the same history, but for the seconds, and the same weights as one process. A rank takes only its own rows out of
    tensors, a Dataset or `Shards`, unless they are augmented, the method keeps variables of each sample or the Dataset
    draws from torch's random state; of an iterable every rank takes all batches, which must be the same. All ranks
    evaluate; the first one writes the checkpoint, and all read it, so that it must lie where each can. A run may go on
    with any number of ranks, or none: with another number sums have another order, and agree up to rounding.

    A run whose loss or parameters leave the finite numbers stops with `Diverged`; that state is not saved.
    """
    return carry_out(Plan(RunConfig(epochs=epochs, **settings), train, test), method, callbacks, config)


def carry_out(plan: Plan, method: Method, callbacks: Any = None, config: Mapping[str, Any] | None = None) -> History:
    """`fit`, of a plan."""
    run, together = plan.run, Together(method)
    with ExitStack() as during:
        context = during.enter_context(plan.products())
        with together.telling():
            hooks = Callbacks(callbacks, together.first)
            loop = Loop(Single(method, together.spread), [History()], [run.seed], plan, hooks, context)
            loop.data.demand_whole(together.size)
            during.enter_context(loop.schedule.during())
            both = {("caller", name): value for name, value in (config or {}).items()}
            both |= {("run", name): value for name, value in _settings(loop, method).items()}
            file = CheckpointFile(run.checkpoint, run.checkpoint_every, both)
            _check_file(loop, file)
            there = file.exists
        same = "the ranks were given different data, seeds or batch sizes; give all the same"
        together.demand_same((loop.seeds, loop.data.settings()), same)
        file.demand_place(together.total(there)[0], together.size, run.resume)
        with together.telling():
            history = _Run(loop, method, file, together).carry_out(run.resume)
        together.meet()
        return history


class _Run:
    """A loop with its callbacks and its checkpoint file."""

    def __init__(self, loop: Loop, method: Method, file: CheckpointFile, together: Together):
        self.loop, self.method, self.file, self.together = loop, method, file, together

    def progress(self) -> Progress:
        loop = self.loop
        history = loop.histories[0]
        between = loop.at.batch == 0 and history.epochs
        loss = history.epochs[-1]["train_loss"] if between else loop.means[0]
        return Progress(
            batch=loop.number,
            batches=loop.batches,
            epoch=loop.at.epoch,
            epochs=loop.epochs,
            train_loss=loss,
            history=history,
            columns=loop.columns,
            method=self.method,
            callbacks=loop.callbacks,
        )

    def save(self) -> None:
        self.loop.demand_finite()
        if self.file.path is not None:
            self.file.save(
                resumed.state_of(self.loop, self.method), self.together.first
            )  # ranks may gather their states

    def after_batch(self) -> None:
        loop = self.loop
        loop.stopped |= loop.callbacks.batch_end(self.progress, kept=True)
        inside = loop.data.resumes and loop.at.batch != loop.per_epoch
        saved = inside and self.file.due(loop.number)
        if saved:
            with loop.off_the_clock():
                self.save()
        loop.stopped |= loop.callbacks.batch_end(self.progress, kept=False)
        if loop.stopped and inside and not saved:
            self.save()

    def after_epoch(self) -> None:
        loop = self.loop
        loop.stopped |= loop.callbacks.epoch_end(self.progress(), kept=True)
        self.save()
        loop.stopped |= loop.callbacks.epoch_end(self.progress(), kept=False)
        loop.stopped = self.together.any(loop.stopped)

    def carry_out(self, resume: bool) -> History:
        loop, file, callbacks = self.loop, self.file, self.loop.callbacks
        try:
            callbacks.start(self.progress())
            if resume:
                resumed.restore(loop, self.method, file)
                another = f"{file.path} is not the same file on all ranks; put it on a disc that all machines share"
                self.together.demand_same(loop.number, another)
                loop.stopped = callbacks.stopped
            if self.together.first:
                file.tidy()
            if not resume:
                loop.schedule.begin(0, 0)
                self.save()
            loop.run(self.after_batch, self.after_epoch)
            callbacks.end(self.progress())
        except Diverged as error:
            remedy = str(error).partition("is not finite; ")[2]
            raise Diverged(f"{error.where} in {loop.here}", f"{remedy}{file.hint()}") from error
        except KeyboardInterrupt:
            resuming = " (resume=True, or --resume, goes on from there)" if file.written else ""
            raise KeyboardInterrupt(f"stopped in {loop.here}{file.hint()}{resuming}") from None
        finally:
            callbacks.close()
        return loop.histories[0]


def _settings(loop: Loop, method: Method) -> dict[str, Any]:
    """All that tells this run from others."""
    tests = {name: part.describe() for name, part in loop.tests.items()}
    single = tests["test"] if list(tests) == ["test"] else "; ".join(f"{k}: {v}" for k, v in tests.items())
    augment = loop.plan.run.augment
    return {
        "seed": loop.seeds[0],
        **loop.data.settings(),
        "schedule": loop.schedule.description,
        "eval_batches": loop.eval_batches,
        "metrics": " and ".join(loop.columns),
        **method_settings(method, loop.context),
        "test data": single or "none",
        **({} if augment is None else {"augmentation": describe(augment)}),
        **loop.callbacks.settings(),
    }


def _check_file(loop: Loop, file: CheckpointFile) -> None:
    """ValueError for a run over an iterable that could not go on from its checkpoints."""
    if loop.data.resumes:
        return
    if file.every is not None:
        raise ValueError(
            "a run over batches of an iterable is kept at the ends of epochs; leave out checkpoint_every, or give "
            "tensors or a Dataset"
        )
    if file.path is not None and getattr(loop.data.source, "once", False):
        raise ValueError(
            "an iterator cannot be begun anew, so a run over it could not go on from its checkpoint; give a list, a "
            "Dataset or a DataLoader, or leave out checkpoint"
        )
