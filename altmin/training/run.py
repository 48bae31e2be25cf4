"""`fit`: one run of a method over the data, which can stop anywhere and go on as if it had not."""

import copy
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from altmin.common.describe import describe
from altmin.common.errors import Diverged
from altmin.methods.protocol import Method
from altmin.training import augment as augmentation
from altmin.training import metrics as named
from altmin.training import resumed
from altmin.training.callbacks import Callbacks
from altmin.training.checkpoint import CheckpointFile
from altmin.training.identity import method_settings
from altmin.training.loop import History, Loop, Single
from altmin.training.plan import Plan
from altmin.training.scheduler import Given as GivenScheduler
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


def fit(
    method: Method,
    train: Any,
    test: Any = None,
    *,
    epochs: int,
    batch_size: int | None = None,
    epoch_batches: int | None = None,
    seed: int = 0,
    metrics: named.Given = None,
    eval_batches: Sequence[int] = (),
    callbacks: Sequence[Any] | Callable[[Progress], Any] | None = None,
    schedule: str = "constant",
    warmup: int = 0,
    scheduler: GivenScheduler | None = None,
    scheduler_every: str = "epoch",
    augment: augmentation.Given = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    config: Mapping[str, Any] | None = None,
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
    plan = Plan(
        train=train,
        test=test,
        epochs=epochs,
        batch_size=batch_size,
        epoch_batches=epoch_batches,
        eval_batches=eval_batches,
        schedule=schedule,
        warmup=warmup,
        scheduler=scheduler,
        scheduler_every=scheduler_every,
        metrics=metrics,
        augment=augment,
    )
    together = Together(method)
    with ExitStack() as during:
        with together.telling():
            hooks = Callbacks(callbacks, together.first)
            loop = Loop(Single(method, together.spread), [History()], [seed], plan, hooks)
            loop.data.demand_whole(together.size)
            during.enter_context(loop.schedule.during())
            both = {("caller", name): value for name, value in (config or {}).items()}
            both |= {("run", name): value for name, value in _settings(loop, method).items()}
            file = CheckpointFile(checkpoint, checkpoint_every, both)
            _check_file(loop, file)
            there = file.exists
        together.demand_same(
            _number(loop), "the ranks were given different data, seeds or batch sizes; give all the same"
        )
        file.demand_place(together.total(there)[0], together.size, resume)
        with together.telling():
            history = _Run(loop, method, file, together).carry_out(resume)
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
            self.file.save(_state(self.loop, self.method), self.together.first)  # ranks may gather their states

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
                _restore(loop, self.method, file)
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
    augment = loop.plan.augment
    return {
        "seed": loop.seeds[0],
        **loop.data.settings(),
        "schedule": loop.schedule.description,
        "eval_batches": loop.eval_batches,
        "metrics": " and ".join(loop.columns),
        **method_settings(method),
        "test data": single or "none",
        **({} if augment is None else {"augmentation": describe(augment)}),
        **loop.callbacks.settings(),
    }


def _number(loop: Loop) -> int:
    """A number below 2**20 that tells runs over other data, or in another order, from this one."""
    return zlib.crc32(repr((loop.seeds, loop.data.settings())).encode()) % 2**20


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


def _state(loop: Loop, method: Method) -> dict[str, Any]:
    """All that a run needs to go on from where it is."""
    random = {"cpu": torch.get_rng_state()}
    if loop.device.type == "cuda":
        random["cuda"] = torch.cuda.get_rng_state(loop.device)
    return {
        "at": asdict(loop.at),
        "history": asdict(loop.histories[0]),
        "model": method.model.state_dict(),
        "method": method.state_dict(),
        "schedule": loop.schedule.state_dict(),
        "callbacks": loop.callbacks.state(),
        "random": random,
        "data": loop.data.state(),
    }


def _restore(loop: Loop, method: Method, file: CheckpointFile) -> None:
    """Go to where the checkpoint was written; if it does not fit, a `ValueError` that leaves all as it is."""
    state = file.load(loop.device)
    before = copy.deepcopy((method.model.state_dict(), method.state_dict(), loop.schedule.state_dict()))
    try:
        at, history = resumed.check(state, loop, method)
    except Exception as error:
        raise ValueError(f"{file.path} does not fit this run: {_one_line(error)}") from error
    try:
        loop.callbacks.load(state["callbacks"])
        method.model.load_state_dict(state["model"])
        method.load_state_dict(state["method"])
        loop.schedule.load_state_dict(state["schedule"])
        loop.data.load(state["data"])
    except Exception as error:  # of a part that checks as it loads
        method.model.load_state_dict(before[0])
        method.load_state_dict(before[1])
        loop.schedule.load_state_dict(before[2])
        raise ValueError(f"{file.path} does not fit this method: {_one_line(error)}") from error
    loop.at, loop.histories[0] = at, history
    torch.set_rng_state(state["random"]["cpu"])
    if loop.device.type == "cuda" and "cuda" in state["random"]:
        torch.cuda.set_rng_state(state["random"]["cuda"].cpu(), loop.device)
    file.written = True


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
