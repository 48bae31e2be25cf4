"""`fit`: one run of a method over the data, which can stop anywhere and go on as if it had not."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from altmin.describe import describe
from altmin.errors import Diverged
from altmin.methods.protocol import Method
from altmin.training import resumed
from altmin.training.augment import Given
from altmin.training.checkpoint import CheckpointFile
from altmin.training.evaluate import Evaluation
from altmin.training.identity import fingerprint, method_settings
from altmin.training.loop import History, Loop, Single, check
from altmin.training.samples import Samples

__all__ = ["Progress", "check", "fit"]


@dataclass(frozen=True)
class Progress:
    """What `report` gets after each batch: which of how many, the epoch's mean loss and the rows so far."""

    batch: int
    batches: int
    train_loss: float
    history: History


def fit(
    method: Method,
    train: Samples,
    test: Samples | None = None,
    *,
    epochs: int,
    batch_size: int,
    seed: int = 0,
    eval_batches: Sequence[int] = (),
    schedule: str = "constant",
    warmup: int = 0,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    config: Mapping[str, Any] | None = None,
    measure: str | None = None,
    evaluate: Evaluation | None = None,
    augment: Given = None,
    report: Callable[[Progress], None] | None = None,
) -> History:
    """Train `method.model` in place for `epochs` passes over `train` and return what was measured on the way.

    The order of the data in an epoch depends on `seed` and the epoch alone: not on the method, the
    evaluations or the global random state. A smaller last batch is used too; only if it is a single sample
    and the model has batch norm, which cannot learn from one, is it left out of that epoch.

    After each epoch and after the batches of `eval_batches` (counted from 1 over the whole run),
    `evaluate(model, test)` is called and its number recorded under the name `measure`. Without `evaluate` it is
    the accuracy, as "test_accuracy", or for targets of a floating type the mean of the method's own loss, as
    "test_loss"; where each sample has several labels, as a sequence of tokens has, it is both. Training finds each
    layer in the mode, training or not, in which it was given. `train_loss` is the mean of the steps' losses;
    `seconds` leave out evaluations and checkpoints.

    `augment` changes the samples of each training batch before its step: "crop-flip" (`altmin.data.CropFlip`),
    "random-windows" of a text (`altmin.data.RandomWindows`), an object with `draw` and `apply` as theirs, or a function
    (x, generator) -> x, on the device, that draws from the generator alone. The generator depends on seed, epoch and
    batch, so a run that goes on sees the same samples.

    `schedule` is one of `SCHEDULES` and moves the learning rate after each batch; with "/epoch" added, as in
    "cosine/epoch", after each epoch, as suits an offline method. `warmup` is the number of batches, or epochs, in which
    the rate first rises to the optimizer's own (`altmin.training.schedule.Schedule`). Afterwards the optimizer has its
    first rate again. In a loop of your own torch's schedulers attach to `method.optimizer`.

    `checkpoint` is a file in which the run is kept at its start, after each epoch and, given
    `checkpoint_every`, after every so many batches. With `resume` it goes on from there to the same
    parameters, bit for bit, as if it had never stopped; that takes the same number of threads, and on a GPU
    algorithms that are deterministic. The checkpoint must come from the same run: of the same method, code
    solver, weight rule, penalty, loss, model, precision and data, each with all options, and with what the caller
    puts into `config`. Data are told apart by their number, shapes, types and 64 of the samples, functions by
    their names, objects by their `repr`. A file that is damaged, or of another run, is a `ValueError` that says
    how, and nothing changes.

    A run whose loss or parameters leave the finite numbers stops with `Diverged`; that state is not saved.
    """
    loop = Loop(
        Single(method),
        [History()],
        [seed],
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
    settings = {
        "seed": seed,
        "batch_size": batch_size,
        "number of training samples": len(train[0]),
        "schedule": loop.schedule.description,
        "eval_batches": loop.eval_batches,
        "measure": " and ".join(loop.measures),
        **method_settings(method),
        "training data": fingerprint(train),
        "test data": fingerprint(test),
        **({} if augment is None else {"augmentation": describe(augment)}),
    }
    both = {("caller", name): value for name, value in (config or {}).items()}
    both |= {("run", name): value for name, value in settings.items()}
    file = CheckpointFile(checkpoint, checkpoint_every, both)

    def save() -> None:
        loop.demand_finite()
        file.save(_state(loop, method))

    def after_batch() -> None:
        if file.due(loop.number) and loop.at.batch < loop.per_epoch:
            with loop.off_the_clock():
                save()
        if report:
            report(Progress(loop.number, epochs * loop.per_epoch, loop.means[0], loop.histories[0]))

    if resume:
        _restore(loop, method, file)
    else:
        file.demand_absent()
        file.tidy()
        with loop.schedule.during(0, 0):
            save()
    try:
        loop.run(after_batch, after_epoch=save)
    except Diverged as error:
        remedy = str(error).partition("is not finite; ")[2]
        raise Diverged(f"{error.where} in {loop.here}", f"{remedy}{file.hint()}") from error
    except KeyboardInterrupt:
        resuming = " (resume=True, or --resume, goes on from there)" if file.written else ""
        raise KeyboardInterrupt(f"stopped in {loop.here}{file.hint()}{resuming}") from None
    return loop.histories[0]


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
        "random": random,
    }


def _restore(loop: Loop, method: Method, file: CheckpointFile) -> None:
    """Go to where the checkpoint was written; if it does not fit, a `ValueError` that leaves all as it is."""
    state = file.load(loop.device)
    before = copy.deepcopy((method.model.state_dict(), method.state_dict()))
    try:
        at, history = resumed.check(state, loop, method)
    except Exception as error:
        raise ValueError(f"{file.path} does not fit this run: {_one_line(error)}") from error
    try:
        method.model.load_state_dict(state["model"])
        method.load_state_dict(state["method"])
    except Exception as error:  # of a method that checks as it loads
        method.model.load_state_dict(before[0])
        method.load_state_dict(before[1])
        raise ValueError(f"{file.path} does not fit this method: {_one_line(error)}") from error
    loop.at, loop.histories[0] = at, history
    torch.set_rng_state(state["random"]["cpu"])
    if loop.device.type == "cuda" and "cuda" in state["random"]:
        torch.cuda.set_rng_state(state["random"]["cuda"].cpu(), loop.device)
    file.written = True
    file.tidy()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
