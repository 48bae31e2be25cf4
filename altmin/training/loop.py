"""The training loop, of one model or of many at once: epochs, batches, evaluations, callbacks, checkpoints."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from altmin.common import precision
from altmin.common.errors import Diverged, demand
from altmin.methods.protocol import Method
from altmin.runners.ranks import ranks_of
from altmin.training import augment, checkpoint, evaluate, resumed
from altmin.training.callbacks import Callbacks
from altmin.training.config import RunConfig
from altmin.training.explosion import LossWatch, exploded, scale_of
from altmin.training.samples import Samples, batch_generator, device_of
from altmin.training.schedule import rates_of
from altmin.training.sources import Epochs, Source, source


@dataclass
class History:
    """Measurements of a run: rows as they stand in the JSON that `dataclasses.asdict` gives."""

    batches: list[dict[str, Any]] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class MemberHistory(History):
    """The rows of a member of an ensemble; if it has diverged, those before, and what `fit` would have said."""

    diverged: str | None = None


@dataclass
class Position:
    """Epochs done, and the batches in them; of the one under way the batches done, the sum of each member's losses, and
    the seconds."""

    losses: list[float]
    epoch: int = 0
    before: int = 0
    batch: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Progress:
    """State of a run, for callbacks: batches and epochs done and, if it is known, of how many; the mean loss of every
    member in the epoch under way, or when a row has been written in the last one (not a number if it has diverged); the
    members' rows so far, and which columns are measured. A method alone is one member."""

    batch: int
    batches: int | None
    epoch: int
    epochs: int
    train_losses: list[float]
    histories: list[Any]
    columns: Sequence[str]
    method: Any
    callbacks: Callbacks

    @property
    def train_loss(self) -> float:
        """Mean loss of the members that take part."""
        return fmean([loss for loss in self.train_losses if loss == loss] or [math.nan])

    @property
    def history(self) -> Any:
        """The rows of the first member."""
        return self.histories[0]

    @property
    def row(self) -> dict[str, Any]:
        """The first member's row of the last epoch."""
        return self.history.epochs[-1]

    @property
    def model(self) -> nn.Module:
        """The model that is trained."""
        return self.method.model

    @property
    def evaluated(self) -> nn.Module:
        """The model that is measured: with `EMA` the averaged one."""
        return self.callbacks.evaluated(self.model)


class Single:
    """One method in the form of an ensemble with one member, which is what the loop trains."""

    diverged: Mapping[int, int] = {}
    steps = 0

    def __init__(self, method: Method):
        self.method, self.methods, self.optimizer = method, [method], method.optimizer

    def member(self, i: int) -> nn.Module:
        """Return the model, read from the method each time, since a recorded one then runs its pending steps."""
        return self.method.model

    def step(self, x: Tensor, y: Tensor, each: bool, **how: Any) -> Any:
        method: Any = self.method
        return method.step_share(x, y, **how) if "of" in how else method.step(x, y, **how)

    def end_epoch(self) -> None:
        self.method.end_epoch()


class Loop:
    """A run of `trained`, an `Ensemble` or a `Single`, and where it is.

    samples: to learn from, and to measure on or None. members: for each its seed, which gives the order in which it
    sees the data, and its history, to which rows are added until it has diverged.
    """

    diverged: Mapping[int, int]

    def __init__(
        self,
        run: RunConfig,
        samples: tuple[Any, Any],
        trained: Any,
        members: Sequence[tuple[int, Any]],
        callbacks: Any,
    ):
        self.run, self.trained, self.ranks = run, trained, ranks_of(trained.methods[0])
        self.seeds, self.histories = [seed for seed, _ in members], [history for _, history in members]
        self.method = trained.method if isinstance(trained, Single) else trained
        self.callbacks = Callbacks(callbacks, self.ranks.rank == 0)
        methods, model = trained.methods, trained.member(0)
        self.device, self.steps_before = device_of(model), trained.steps
        self.data = Epochs(source("train", samples[0], model), model, self.seeds, run.batch_size)
        self.tests = _tests(samples[1], model)
        loss = getattr(methods[0], "loss", None)
        self.measures = {name: evaluate.choose(run.metrics, part.first()[1], loss) for name, part in self.tests.items()}
        self.columns = [f"{part}_{metric.name}" for part, metrics in self.measures.items() for metric in metrics]
        self.eval_batches = self._eval_batches()
        self.change = augment.change(run.augment, self.data.source)
        self.data.give_rows = any(getattr(method, "takes_rows", False) for method in methods)
        if self.data.give_rows and (self.change is not None or not self.data.resumes):
            name = type(methods[0]).__name__
            raise ValueError(f"{name} keeps variables of each sample; give tensors or arrays, and no augment")
        if self.change is None and not self.data.give_rows and hasattr(methods[0], "step_share"):
            self.data.spread = self.ranks.rank, self.ranks.size
        self.at = Position([0.0] * len(self.seeds))
        self.stopped = False
        self.unread: list[Tensor] = []
        self.watches = [LossWatch() for _ in self.seeds]
        self.latest: Samples | None = None
        self.clock = time.perf_counter()
        self.read()
        by_epoch = getattr(methods[0], "moves_by_epoch", False)
        self.schedule = rates_of(run, trained.optimizer, self.data.per_epoch, self.columns, by_epoch)
        self.settings = {} if run.checkpoint is None else resumed.settings_of(self)

    def _eval_batches(self) -> list[int]:
        """Return the batches of the run after which to measure."""
        run, per_epoch = self.run, self.data.per_epoch
        last = math.inf if per_epoch is None else run.epochs * per_epoch
        for number in run.eval_batches:
            demand("fit", "each of eval_batches", number, low=1, whole=True)
            if not self.tests or number > last:
                raise ValueError(f"to evaluate after batch {number} takes test samples, and a run of {last:g} batches")
        return sorted(set(run.eval_batches))

    @property
    def number(self) -> int:
        """Batches done since the run began."""
        return self.at.before + self.at.batch

    @property
    def active(self) -> list[int]:
        """The members that had not diverged at the last read of the losses."""
        return [i for i in range(len(self.seeds)) if i not in self.diverged]

    @property
    def here(self) -> str:
        """The position of the current batch; after an epoch's batches, of its last one."""
        ended = self.at.batch == self.data.per_epoch
        return self.place(self.number + (not ended))

    def place(self, number: int) -> str:
        """Return the position of batch `number`, counted from 1 over the run."""
        if self.data.per_epoch is None:
            return f"batch {number} of the run"
        epoch, batch = divmod(number - 1, self.data.per_epoch)
        return f"epoch {epoch + 1}, batch {batch + 1} of {self.data.per_epoch}"

    def progress(self) -> Progress:
        """Return what callbacks get. Losses of an epoch under way are as far as they were read."""
        count = max(1, self.at.batch - len(self.unread))
        losses = [loss / count for loss in self.at.losses]
        if self.at.batch == 0:
            ended = [history.epochs[-1:] for history in self.histories]
            losses = [row[0]["train_loss"] if row else loss for loss, row in zip(losses, ended, strict=True)]
        return Progress(
            batch=self.number,
            batches=None if self.data.per_epoch is None else self.run.epochs * self.data.per_epoch,
            epoch=self.at.epoch,
            epochs=self.run.epochs,
            train_losses=[math.nan if i in self.diverged else loss for i, loss in enumerate(losses)],
            histories=self.histories,
            columns=self.columns,
            method=self.method,
            callbacks=self.callbacks,
        )

    def carry_out(self) -> None:
        """Train from the start, or from where the checkpoint was written, to the end, or until a callback stops it.

        A loss that is not finite or explodes, or at the end of an epoch a parameter that is not finite, raises
        `Diverged`, unless it belongs to a member that `trained.diverged` names: that one takes no further part.
        """
        at_file = f"; the last checkpoint is {self.run.checkpoint}" if self.run.checkpoint is not None else ""
        try:
            self.callbacks.call("on_start", self.progress())
            if self.run.resume:
                resumed.restore(self, self.run.checkpoint)
                self.ranks.check_same(self.number, f"{self.run.checkpoint} is not the same file on all ranks")
                self.stopped = self.callbacks.stopped
            self.schedule.move(self.number, self.at.epoch)
            if not self.run.resume:
                self.save()
            while self.at.epoch < self.run.epochs and not self.stopped:
                self._epoch()
            self.callbacks.call("on_end", self.progress())
        except Diverged as error:
            self.diverged = self.trained.diverged
            if self.active:
                raise Diverged(f"{error.where} in {self.here}", f"{error.remedy}{at_file}", error.what) from error
        except KeyboardInterrupt:
            going_on = " (resume=True, or --resume, goes on from there)" if at_file else ""
            raise KeyboardInterrupt(f"stopped in {self.here}{at_file}{going_on}") from None
        finally:
            self.schedule.end()
            self.callbacks.call("close")
        self._note_diverged()

    def _epoch(self) -> None:
        """Train the rest of the current epoch, or until a callback stops the run."""
        self.clock = time.perf_counter()
        for x, y, how in self.data.batches(self.at.epoch, self.at.batch):
            self._step(x, y, how)
            self._note_diverged()
            if self.callbacks.on_batch_end:
                self.stopped |= self.callbacks.call("on_batch_end", self.progress())
            inside = self.at.batch != self.data.per_epoch
            due = self.run.checkpoint_every is not None and self.number % self.run.checkpoint_every == 0
            if inside and self.data.resumes and (due or self.stopped):
                self.save()
            if inside and self.stopped:
                return
        self.trained.end_epoch()
        with self.off_the_clock():
            self.demand_finite()
            row: dict[str, Any] = {}
            for i in self.active:
                row = {"epoch": self.at.epoch + 1, "train_loss": self.at.losses[i] / self.at.batch}
                row |= {**self._measured(i), "seconds": self.at.seconds / len(self.seeds)}
                self.histories[i].epochs.append(row)
            self.at = Position([0.0] * len(self.seeds), self.at.epoch + 1, self.number)
            self.schedule.move(self.number, self.at.epoch)
            self.schedule.after_epoch(row)
        self.stopped |= self.callbacks.call("on_epoch_end", self.progress())
        self.save()
        self.stopped = self.ranks.total(self.stopped)[0] > 0

    def _step(self, x: Any, y: Tensor, how: dict[str, Any]) -> None:
        """Train on one batch, and measure if it is one of `eval_batches`."""
        x, y = self._changed(x.to(self.device), y.to(self.device))
        with precision.rounding(self.run.precision, self.device):
            metrics = self.trained.step(x, y, each=self.data.per_member, **how)
        self.unread.append(metrics.loss.detach().reshape(-1).to(torch.float64, copy=True))
        self.latest = x, y
        self.at.batch += 1
        if self.callbacks.after_step:
            self.synchronize()
        for hook in self.callbacks.after_step:
            hook(self.trained.member(0))
        self.schedule.move(self.number, self.at.epoch)
        if self.device.type == "cpu" or self.at.batch % 50 == 1:  # reading makes the host wait for a GPU
            self.read()
        if self.number in self.eval_batches:
            with self.off_the_clock():
                self.read()
                self.synchronize()
                for i in self.active:
                    self.histories[i].batches.append({"batch": self.number, **self._measured(i)})

    def save(self) -> None:
        """Write a checkpoint, if there is a file for it. `Diverged` if a loss or a parameter is not finite."""
        with self.off_the_clock():
            self.demand_finite()
            if self.run.checkpoint is not None:
                state = resumed.state_of(self)  # ranks may gather their states
                if self.ranks.rank == 0:
                    checkpoint.save(self.run.checkpoint, state)

    def read(self) -> None:
        """Wait for pending losses and for which members have diverged.

        Losses are added one by one, since a sum must not depend on when they are read. One that is not finite, or that
        explodes, raises `Diverged`, and the position goes back to before its batch; a member of an ensemble whose loss
        explodes takes no further part instead.
        """
        batches = torch.stack(self.unread).tolist() if self.unread else []
        self.unread.clear()
        self.diverged = self.trained.diverged
        for position, losses in enumerate(batches):
            for i, loss in enumerate(losses):
                later = len(batches) - position
                if math.isfinite(loss):
                    self.at.losses[i] += loss
                    if i not in self.diverged and self.watches[i].explodes(loss, self._scale):
                        self._stop(i, loss, later)
                elif i not in self.diverged:
                    self.at.batch -= later
                    raise Diverged("the loss")

    def _scale(self) -> float:
        """Return the scale of the latest batch; ranks may have parts of it."""
        assert self.latest is not None
        return self.ranks.total(scale_of(*self.latest))[0]

    def _stop(self, i: int, loss: float, later: int) -> None:
        """End the training of a member whose loss exploded; later: the number of batches from there on."""
        assert self.latest is not None
        method, place = self.trained.methods[i], self.place(self.number - later + 1)
        if isinstance(self.trained, Single):
            self.at.batch -= later
            raise exploded(loss, method, *self.latest)
        self.trained.exclude(i)
        self.diverged = self.trained.diverged
        self.histories[i].diverged = str(exploded(loss, method, *self.latest, where=f"the loss in {place}"))

    def _note_diverged(self) -> None:
        for i, step in self.diverged.items():
            here = step - self.steps_before
            place, what = (self.place(here), "") if here > 0 else ("an earlier run", " or exploded")
            error = Diverged(f"the loss or a weight in {place}", what=f"is not finite{what}")
            self.histories[i].diverged = self.histories[i].diverged or str(error)

    def demand_finite(self) -> None:
        """Raise `Diverged` for a loss or a parameter that is not finite: a loss depends only on the parameters before
        its step."""
        self.read()
        self.synchronize()
        for i in self.active:
            for name, value in self.trained.member(i).named_parameters():
                if not value.isfinite().all():
                    self.at.batch -= 1
                    raise Diverged(name)

    def synchronize(self) -> None:
        """Give every rank the weights of the others, for a method whose blocks are spread over ranks
        (`LayerParallel`), before the model is read."""
        if hasattr(self.method, "synchronize"):
            self.method.synchronize()

    @contextmanager
    def off_the_clock(self) -> Iterator[None]:
        """Exclude the time spent inside from the training time."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.at.seconds += time.perf_counter() - self.clock
        yield
        self.clock = time.perf_counter()

    def _measured(self, i: int) -> dict[str, float]:
        """Return a member's columns."""
        model, columns = self.callbacks.evaluated(self.trained.member(i)), dict[str, float]()
        for part, metrics in self.measures.items():
            values = evaluate.measure(model, self.tests[part], metrics)
            columns |= {f"{part}_{name}": value for name, value in values.items()}
        return columns

    def _changed(self, x: Any, y: Tensor) -> Samples:
        """Return the current batch, augmented."""
        if self.change is None:
            return x, y
        generators = [batch_generator(seed, self.at.epoch, self.at.batch) for seed in self.seeds]
        if not self.data.per_member:
            return self.change(x, y, generators[0])
        parts = [self.change(*part) for part in zip(x, y, generators, strict=True)]
        return torch.stack([x for x, _ in parts]), torch.stack([y for _, y in parts])


def _tests(test: Any, model: nn.Module) -> dict[str, Source]:
    """Return the samples to measure on, by the prefix of their columns."""
    if test is None:
        return {}
    parts = test if isinstance(test, Mapping) else {"test": test}
    for name, samples in parts.items():
        if isinstance(samples, Iterator):
            raise ValueError(f"{name} of fit is needed after every epoch; give a list or a DataLoader, no iterator")
    return {str(name): source(str(name), samples, model) for name, samples in parts.items()}
