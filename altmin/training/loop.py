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

from altmin.calculus.context import LOCAL, Context
from altmin.common.errors import Diverged
from altmin.methods.protocol import Method
from altmin.runners.ranks import Ranks
from altmin.training import resumed
from altmin.training.callbacks import Callbacks
from altmin.training.checkpoint import CheckpointFile
from altmin.training.evaluate import measure
from altmin.training.explosion import LossWatch, exploded, scale_of, warn_of_large_targets
from altmin.training.plan import Plan, demand_context
from altmin.training.samples import Samples, batch_generator, device_of


@dataclass
class History:
    """What a run measured: rows as they stand in the JSON that `dataclasses.asdict` gives."""

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
    """What callbacks get: batches and epochs done and, as far as it is known, of how many; the mean loss of every
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
        """The mean over the members that take part."""
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
        """Read from the method each time, since a recorded one then runs its pending steps."""
        return self.method.model

    def step(self, x: Tensor, y: Tensor, each: bool, **how: Any) -> Any:
        method: Any = self.method
        return method.step_share(x, y, **how) if "of" in how else method.step(x, y, **how)

    def end_epoch(self) -> None:
        self.method.end_epoch()


class Loop:
    """A run of `trained`, an `Ensemble` or a `Single`, by a plan, and where it is.

    histories: one for each member; rows are added to those of members that have not diverged. seeds: one for each
    member, which give the orders in which they see the data. context: of the steps. ranks: those that train.
    file: where the run is kept. A loop that is made moves the rates of the optimizer only within `schedule.during()`.
    """

    file = CheckpointFile(None, None, {})
    diverged: Mapping[int, int]

    def __init__(
        self,
        trained: Any,
        histories: Sequence[Any],
        seeds: Sequence[int],
        plan: Plan,
        callbacks: Callbacks,
        context: Context,
        ranks: Ranks,
    ):
        self.method = trained.method if isinstance(trained, Single) else trained
        if context is not LOCAL:
            demand_context(self.method)
        model = trained.member(0)
        self.trained, self.histories, self.seeds = trained, list(histories), list(seeds)
        self.plan, self.callbacks, self.context, self.ranks = plan, callbacks, context, ranks
        self.epochs, self.steps_before = plan.run.epochs, trained.steps
        self.data = plan.data(model, seeds)
        self.per_epoch = self.data.per_epoch
        methods = trained.methods
        self.tests = plan.tests(model)
        self.measures = plan.measures(self.tests, getattr(methods[0], "loss", None))
        self.columns = [f"{part}_{metric.name}" for part, metrics in self.measures.items() for metric in metrics]
        self.eval_batches = plan.evaluated(self.tests, self.per_epoch)
        self.change = plan.change(self.data, methods)
        self.device = device_of(model)
        self.data.give_rows = any(getattr(method, "takes_rows", False) for method in methods)
        if self.data.give_rows and not self.data.resumes:
            raise ValueError(f"{type(methods[0]).__name__} keeps variables of each sample; give tensors or a Dataset")
        if self.change is None and not self.data.give_rows:
            self.data.spread = (
                (ranks.rank, ranks.size) if ranks.size > 1 and hasattr(methods[0], "step_share") else None
            )
        self.at = Position([0.0] * len(self.seeds))
        self.stopped = False
        self.unread: list[Tensor] = []
        self.watches = [LossWatch() for _ in self.seeds]
        self.latest: Samples | None = None
        self.clock = time.perf_counter()
        self.read()
        self.schedule = plan.rates(trained.optimizer, self.per_epoch, self.columns)

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
        if self.per_epoch is None:
            return f"epoch {self.at.epoch + 1}, batch {self.at.batch + 1}"
        return self.place(self.number + (self.at.batch < self.per_epoch))

    def place(self, number: int) -> str:
        """The position of batch `number`, counted from 1 over the run."""
        if self.per_epoch is None:
            return f"batch {number} of the run"
        epoch, batch = divmod(number - 1, self.per_epoch)
        return f"epoch {epoch + 1}, batch {batch + 1} of {self.per_epoch}"

    def progress(self) -> Progress:
        """For callbacks. Losses of an epoch under way are as far as they were read."""
        count = max(1, self.at.batch - len(self.unread))
        losses = [loss / count for loss in self.at.losses]
        if self.at.batch == 0:
            ended = [history.epochs[-1:] for history in self.histories]
            losses = [row[0]["train_loss"] if row else loss for loss, row in zip(losses, ended, strict=True)]
        return Progress(
            batch=self.number,
            batches=None if self.per_epoch is None else self.epochs * self.per_epoch,
            epoch=self.at.epoch,
            epochs=self.epochs,
            train_losses=[math.nan if i in self.diverged else loss for i, loss in enumerate(losses)],
            histories=self.histories,
            columns=self.columns,
            method=self.method,
            callbacks=self.callbacks,
        )

    def run(self, resume: bool) -> None:
        """Train from the start, or from where the checkpoint was written, to the end, or until a callback stops it.
        Within `schedule.during()`.

        A loss that is not finite or explodes, or at the end of an epoch a parameter that is not finite, raises
        `Diverged`, unless it belongs to a member that `trained.diverged` names: that one takes no further part.
        """
        try:
            self.callbacks.call("on_start", self.progress())
            if resume:
                resumed.restore(self)
                another = "is not the same file on all ranks; put it on a disc that all machines share"
                self.ranks.check_same(self.number, f"{self.file.path} {another}")
                self.stopped = self.callbacks.stopped
            self.schedule.begin(self.number, self.at.epoch)
            if not resume:
                self.save()
            while self.at.epoch < self.epochs and not self.stopped:
                if self._train_epoch():
                    self._after_epoch()
            self.callbacks.call("on_end", self.progress())
        except Diverged as error:
            self.diverged = self.trained.diverged
            if self.active:
                hint = self.file.hint("last good" if error.what == "is not finite" else "last")
                raise Diverged(f"{error.where} in {self.here}", f"{error.remedy}{hint}", error.what) from error
        except KeyboardInterrupt:
            resuming = " (resume=True, or --resume, goes on from there)" if self.file.written else ""
            raise KeyboardInterrupt(f"stopped in {self.here}{self.file.hint()}{resuming}") from None
        finally:
            self.callbacks.close()
        self._note_diverged()

    def _train_epoch(self) -> bool:
        """The rest of the current epoch; returns whether it was completed."""
        self.clock = time.perf_counter()
        rounded: dict[str, Any] = {} if self.context is LOCAL else {"context": self.context}
        for x, y, how in self.data.batches(self.at.epoch, self.at.batch):
            x, y = self._changed(x.to(self.device), y.to(self.device))
            metrics = self.trained.step(x, y, each=self.data.each, **how, **rounded)
            self.unread.append(metrics.loss.detach().reshape(-1).to(torch.float64, copy=True))
            self.latest = x, y
            self.at.batch += 1
            if self.callbacks.steps:
                self.synchronize()
            for hook in self.callbacks.steps:
                hook(self.trained.member(0))
            self.schedule.after_batch(self.number)
            if self.device.type == "cpu" or self.at.batch % 50 == 1:  # reading makes the host wait for a GPU
                self.read()
            if self.number in self.eval_batches:
                with self.off_the_clock():
                    self.read()
                    self.synchronize()
                    for i in self.active:
                        self.histories[i].batches.append({"batch": self.number, **self._measured(i)})
            self._after_batch()
            if self.stopped and self.at.batch != self.per_epoch:
                return False
        self.trained.end_epoch()
        with self.off_the_clock():
            self.demand_finite()
            row: dict[str, Any] = {}
            for i in self.active:
                row = {"epoch": self.at.epoch + 1, "train_loss": self.at.losses[i] / self.at.batch}
                row |= {**self._measured(i), "seconds": self.at.seconds / len(self.seeds)}
                self.histories[i].epochs.append(row)
            if row and self.at.epoch == 0 and self.ranks.rank == 0 and self.latest is not None:
                warn_of_large_targets(row["train_loss"], getattr(self.trained.methods[0], "loss", None), self.latest[1])
            self.at = Position([0.0] * len(self.seeds), self.at.epoch + 1, self.number)
            self.schedule.after_epoch(self.at.epoch, row)
        return True

    def _after_batch(self) -> None:
        self._note_diverged()
        self.stopped |= self.callbacks.batch_end(self.progress, kept=True)
        inside = self.data.resumes and self.at.batch != self.per_epoch
        saved = inside and self.file.due(self.number)
        if saved:
            with self.off_the_clock():
                self.save()
        self.stopped |= self.callbacks.batch_end(self.progress, kept=False)
        if self.stopped and inside and not saved:
            self.save()

    def _after_epoch(self) -> None:
        self.stopped |= self.callbacks.epoch_end(self.progress(), kept=True)
        self.save()
        self.stopped |= self.callbacks.epoch_end(self.progress(), kept=False)
        self.stopped = self.ranks.total(self.stopped)[0] > 0

    def save(self) -> None:
        """Write a checkpoint, if there is a file for it. `Diverged` if a loss or a parameter is not finite."""
        self.demand_finite()
        if self.file.path is not None:
            self.file.save(resumed.state_of(self), self.ranks.rank == 0)  # ranks may gather their states

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
        """Of the latest batch; ranks may have parts of it."""
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
        """Every rank gets the weights of the others, for a method whose blocks are spread over ranks
        (`LayerParallel`), before the model is read."""
        if hasattr(self.method, "synchronize"):
            self.method.synchronize()

    @contextmanager
    def off_the_clock(self) -> Iterator[None]:
        """Time spent inside does not count as training time."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.at.seconds += time.perf_counter() - self.clock
        yield
        self.clock = time.perf_counter()

    def _measured(self, i: int) -> dict[str, float]:
        """A member's columns."""
        found: dict[str, float] = {}
        for part, metrics in self.measures.items():
            model = self.callbacks.evaluated(self.trained.member(i))
            values = measure(model, self.tests[part], metrics)
            found |= {f"{part}_{name}": value for name, value in values.items()}
        return found

    def _changed(self, x: Tensor, y: Tensor) -> Samples:
        """The current batch, augmented."""
        if self.change is None:
            return x, y
        if not self.data.each:
            return self.change(x, y, batch_generator(self.seeds[0], self.at.epoch, self.at.batch))
        generators = [batch_generator(seed, self.at.epoch, self.at.batch) for seed in self.seeds]
        parts = [self.change(*part) for part in zip(x, y, generators, strict=True)]
        return torch.stack([x for x, _ in parts]), torch.stack([y for _, y in parts])
