"""`fit`: one run of a method over the data, which can stop anywhere and go on as if it had not."""

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from altmin.errors import Diverged
from altmin.fit.checkpoint import Keeper
from altmin.fit.samples import Samples, accuracy, batches_per_epoch, device_of, epoch_order
from altmin.fit.schedule import Schedule
from altmin.methods.protocol import Method


@dataclass
class History:
    """What a run measured: rows as they stand in the JSON that `dataclasses.asdict` gives."""

    batches: list[dict[str, Any]] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)


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
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    config: Mapping[str, Any] | None = None,
    measure: str = "test_accuracy",
    report: Callable[[Progress], None] | None = None,
) -> History:
    """Train `method.model` in place for `epochs` passes over `train` and return what was measured on the way.

    The order of the data in an epoch depends on `seed` and the epoch alone: not on the method, the
    evaluations or the global random state. A smaller last batch is used too; only if it is a single sample
    and the model has batch norm, which cannot learn from one, is it left out of that epoch.

    Accuracy on `test` is measured after each epoch and after the batches of `eval_batches` (counted from 1
    over the whole run), and recorded as `measure`. Training finds each layer in the mode, training or not, in
    which it was given. `train_loss` is the mean of the steps' losses; `seconds` leave out evaluations and
    checkpoints.

    `schedule` is one of `SCHEDULES` and moves the learning rate after each batch; with "/epoch" added, as in
    "cosine/epoch", after each epoch, as suits an offline method. Afterwards the optimizer has its first rate
    again.

    `checkpoint` is a file in which the run is kept at its start, after each epoch and, given
    `checkpoint_every`, after every so many batches. With `resume` it goes on from there to the same
    parameters, bit for bit, as if it had never stopped; that takes the same number of threads, and on a GPU
    algorithms that are deterministic. The checkpoint must come from a run with the same settings, including
    what the caller puts into `config`.

    A run whose loss or parameters leave the finite numbers stops with `Diverged`; that state is not saved.
    """
    per_epoch, evaluated = check(method.model, train, test, epochs, batch_size, eval_batches)
    plan = Schedule(schedule, method.optimizer, epochs, epochs * per_epoch)
    settings = {
        "method": type(method).__name__,
        "optimizer": _describe(method.optimizer),
        "seed": seed,
        "batch_size": batch_size,
        "number of training samples": len(train[0]),
        "schedule": plan.description,
        "eval_batches": evaluated,
        "measure": measure,
    }
    keeper = Keeper(checkpoint, checkpoint_every, {**settings, **(config or {})})
    run = _Run(method, train, test, batch_size, seed, frozenset(evaluated), plan, keeper, measure, per_epoch)
    run.restore(epochs) if resume else run.start()
    try:
        while run.at.epoch < epochs:
            for _ in run.epoch():
                if report:
                    report(run.progress(epochs))
    except Diverged as error:
        remedy = str(error).partition("is not finite; ")[2]
        raise Diverged(f"{error.where} in {run.place()}", f"{remedy}{keeper.hint()}") from error
    except KeyboardInterrupt:
        resuming = " (resume=True, or --resume, goes on from there)" if keeper.written else ""
        raise KeyboardInterrupt(f"stopped in {run.place()}{keeper.hint()}{resuming}") from None
    finally:
        plan.set(0)
    return run.history


def check(
    model: nn.Module,
    train: Samples,
    test: Samples | None,
    epochs: int,
    batch_size: int,
    eval_batches: Sequence[int],
) -> tuple[int, list[int]]:
    """How many batches an epoch has, and after which to evaluate; complains of a run that cannot be."""
    positive = {"epochs": epochs, "batch_size": batch_size, "the number of samples": len(train[0])}
    for name, value in positive.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
    for x, y in [train, train if test is None else test]:
        if len(x) != len(y):
            raise ValueError(f"there are {len(x)} samples but {len(y)} labels")
    per_epoch = batches_per_epoch(model, len(train[0]), batch_size)
    evaluated = sorted(set(eval_batches))
    for number in evaluated:
        if test is None or not 1 <= number <= epochs * per_epoch:
            raise ValueError(
                f"cannot evaluate after batch {number}: that needs test samples, and a batch among the run's "
                f"1 to {epochs * per_epoch}"
            )
    return per_epoch, evaluated


@dataclass
class _Position:
    """Epochs done; of the one under way the batches done, the sum of their losses, and their seconds."""

    epoch: int = 0
    batch: int = 0
    loss: float = 0.0
    seconds: float = 0.0


@dataclass
class _Run:
    """The parts of a run and where it is."""

    method: Method
    train: Samples
    test: Samples | None
    batch_size: int
    seed: int
    eval_batches: frozenset[int]
    schedule: Schedule
    keeper: Keeper
    measure: str
    per_epoch: int
    at: _Position = field(default_factory=_Position)
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        self.device = device_of(self.model)
        self.unread: list[Tensor] = []
        self.clock = time.perf_counter()

    @property
    def model(self) -> nn.Module:
        """Asked for anew each time: a recorded method then makes up for what it has left out."""
        return self.method.model

    @property
    def number(self) -> int:
        """Batches done since the run began."""
        return self.at.epoch * self.per_epoch + self.at.batch

    def place(self) -> str:
        return f"epoch {self.at.epoch + 1}, batch {min(self.at.batch + 1, self.per_epoch)} of {self.per_epoch}"

    def progress(self, epochs: int) -> Progress:
        mean = self.at.loss / max(1, self.at.batch - len(self.unread))
        return Progress(self.number, epochs * self.per_epoch, mean, self.history)

    def epoch(self) -> Iterator[None]:
        """What is left of the epoch; yields after each batch."""
        x, y = self.train
        order = epoch_order(len(x), self.seed, self.at.epoch).to(x.device)
        self.clock = time.perf_counter()
        for rows in order.split(self.batch_size)[self.at.batch : self.per_epoch]:
            metrics = self.method.step(x[rows].to(self.device), y[rows].to(self.device))
            self.unread.append(metrics.loss.detach().to(torch.float64, copy=True))
            self.at.batch += 1
            self.schedule.after_batch(self.number)
            if self.device.type == "cpu" or len(self.unread) >= 50:  # reading makes the host wait for a GPU
                self._read_losses()
            if self.number in self.eval_batches:
                with self._off_the_clock():
                    self.history.batches.append({"batch": self.number, **self._accuracy()})
            if self.keeper.due(self.number) and self.at.batch < self.per_epoch:
                with self._off_the_clock():
                    self._save()
            yield
        self.method.end_epoch()
        self.schedule.after_epoch(self.at.epoch + 1)
        with self._off_the_clock():
            self._check()
            mean = self.at.loss / self.per_epoch
            row = {"epoch": self.at.epoch + 1, "train_loss": mean, **self._accuracy()}
            self.history.epochs.append({**row, "seconds": self.at.seconds})
            self.at = _Position(self.at.epoch + 1)
            self._save()

    def _read_losses(self) -> None:
        """Add up the losses that have gathered, one by one: the sum must not depend on when they are read."""
        values = torch.stack(self.unread).tolist() if self.unread else []
        self.unread.clear()
        for position, value in enumerate(values):
            if not math.isfinite(value):
                self.at.batch -= len(values) - position
                raise Diverged("the loss")
            self.at.loss += value

    def _check(self) -> None:
        """A loss tells of the parameters before its step only, so look at those of now too."""
        self._read_losses()
        for name, value in self.model.named_parameters():
            if not value.isfinite().all():
                self.at.batch -= 1
                raise Diverged(name)

    def _accuracy(self) -> dict[str, float]:
        return {} if self.test is None else {self.measure: accuracy(self.model, self.test)}

    @contextmanager
    def _off_the_clock(self) -> Iterator[None]:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.at.seconds += time.perf_counter() - self.clock
        yield
        self.clock = time.perf_counter()

    def start(self) -> None:
        self.keeper.claim()
        self._save()

    def _save(self) -> None:
        self._check()
        random = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self.device)
        self.keeper.save(
            {
                "at": asdict(self.at),
                "history": asdict(self.history),
                "model": self.model.state_dict(),
                "method": self.method.state_dict(),
                "random": random,
            }
        )

    def restore(self, epochs: int) -> None:
        """Go to where the checkpoint was written; if it does not fit, say so and leave all as it is."""
        state = self.keeper.load(self.device)
        self.keeper.demand("model", _shapes(state["model"]), _shapes(self.model.state_dict()))
        if state["at"]["epoch"] > epochs:
            raise ValueError(f"{self.keeper.path} holds {state['at']['epoch']} epochs, more than {epochs}")
        before = copy.deepcopy((self.model.state_dict(), self.method.state_dict()))
        try:
            self.model.load_state_dict(state["model"])
            self.method.load_state_dict(state["method"])
        except Exception as error:
            self.model.load_state_dict(before[0])
            self.method.load_state_dict(before[1])
            raise ValueError(f"{self.keeper.path} does not fit this method: {error}") from error
        self.at, self.history = _Position(**state["at"]), History(**state["history"])
        self.schedule.after_batch(self.number)
        self.schedule.after_epoch(self.at.epoch)
        torch.set_rng_state(state["random"]["cpu"])
        if self.device.type == "cuda" and "cuda" in state["random"]:
            torch.cuda.set_rng_state(state["random"]["cuda"], self.device)


def _describe(optimizer: torch.optim.Optimizer) -> str:
    """An optimizer's kind and numbers, e.g. "Adam(lr=0.001, betas=(0.9, 0.999), eps=1e-08)"."""
    numbers = [
        ", ".join(f"{k}={v}" for k, v in group.items() if type(v) in (int, float, tuple))
        for group in optimizer.param_groups
    ]
    return f"{type(optimizer).__name__}({'; '.join(numbers)})"


def _shapes(state: Mapping[str, Tensor]) -> str:
    return ", ".join(f"{name} {'x'.join(map(str, value.shape))}" for name, value in state.items())
