"""The training loop, of one model or of many at once: epochs, batches, schedule, evaluations, losses and the clock."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from altmin.calculus.context import LOCAL, Context
from altmin.common.errors import Diverged
from altmin.methods.protocol import Method
from altmin.training.callbacks import Callbacks
from altmin.training.epochs import Batch
from altmin.training.evaluate import measure
from altmin.training.plan import Plan, demand_context
from altmin.training.samples import Samples, batch_generator, device_of


@dataclass
class History:
    """What a run measured: rows as they stand in the JSON that `dataclasses.asdict` gives."""

    batches: list[dict[str, Any]] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Position:
    """Epochs done, and the batches in them; of the one under way the batches done, the sum of each member's losses, and
    the seconds."""

    losses: list[float]
    epoch: int = 0
    before: int = 0
    batch: int = 0
    seconds: float = 0.0


class Single:
    """One method in the form of an ensemble with one member, which is what the loop trains.

    spread: this rank's number and how many there are, where each takes its own rows of a batch (`Distributed`)."""

    diverged: Mapping[int, int] = {}

    def __init__(self, method: Method, spread: tuple[int, int] | None = None):
        if isinstance(method, nn.Module):
            raise TypeError(f"fit trains by a method, given a {type(method).__name__}; give altmin.AltMin(model)")
        self.methods, self.optimizer, self.spread = [method], method.optimizer, spread

    def member(self, i: int) -> nn.Module:
        """Asked of the method anew each time, since a recorded one then does the steps it has put off."""
        return self.methods[i].model

    def step(self, x: Tensor, y: Tensor, each: bool, **how: Any) -> Any:
        method: Any = self.methods[0]
        return method.step_share(x, y, **how) if "of" in how else method.step(x, y, **how)

    def end_epoch(self) -> None:
        self.methods[0].end_epoch()


class Loop:
    """A run of `trained`, an `Ensemble` or a `Single`, by a plan, and where it is.

    histories: one for each member; rows are added to those of members that have not diverged. seeds: one for each
    member, which give the orders in which they see the data. context: of the steps. A loop that is made moves the rates
    of the optimizer only within `schedule.during()`.
    """

    def __init__(
        self,
        trained: Any,
        histories: Sequence[History],
        seeds: Sequence[int],
        plan: Plan,
        callbacks: Callbacks,
        context: Context = LOCAL,
    ):
        if context is not LOCAL:
            demand_context(trained.methods[0] if isinstance(trained, Single) else trained)
        model = trained.member(0)
        self.trained, self.histories, self.seeds = trained, list(histories), list(seeds)
        self.plan, self.callbacks, self.epochs, self.context = plan, callbacks, plan.run.epochs, context
        self.data = plan.data(model, seeds)
        self.per_epoch = self.data.per_epoch
        methods = trained.methods
        self.tests = plan.tests(model)
        self.measures = plan.measures(self.tests, getattr(methods[0], "loss", None))
        self.columns = [f"{part}_{metric.name}" for part, metrics in self.measures.items() for metric in metrics]
        self.eval_batches = plan.evaluated(self.tests, self.per_epoch)
        self.change = plan.change(self.data, methods)
        self.device = device_of(model)
        self.takes_rows = any(getattr(method, "takes_rows", False) for method in methods)
        if self.takes_rows and not self.data.resumes:
            raise ValueError(
                f"{type(methods[0]).__name__} keeps variables for each sample, by its number in the data; give tensors "
                "or a Dataset instead of batches"
            )
        if self.change is None and not self.takes_rows:
            self.data.spread = getattr(trained, "spread", None)
        self.at = Position([0.0] * len(self.seeds))
        self.stopped = False
        self.unread: list[Tensor] = []
        self.clock = time.perf_counter()
        self.read()
        self.schedule = plan.rates(trained.optimizer, self.per_epoch, self.columns)

    @property
    def number(self) -> int:
        """Batches done since the run began."""
        return self.at.before + self.at.batch

    @property
    def batches(self) -> int | None:
        """Batches of the whole run, if that is known."""
        return None if self.per_epoch is None else self.epochs * self.per_epoch

    @property
    def means(self) -> list[float]:
        """Each member's mean loss in this epoch, as far as it was read; not a number for those that have diverged."""
        count = max(1, self.at.batch - len(self.unread))
        return [math.nan if i in self.diverged else loss / count for i, loss in enumerate(self.at.losses)]

    @property
    def active(self) -> list[int]:
        """The members that had not diverged when the losses were last read."""
        return [i for i in range(len(self.seeds)) if i not in self.diverged]

    @property
    def here(self) -> str:
        """Where the batch under way stands; when an epoch's batches are done, its last."""
        if self.per_epoch is None:
            return f"epoch {self.at.epoch + 1}, batch {self.at.batch + 1}"
        return self.place(self.number + (self.at.batch < self.per_epoch))

    def place(self, number: int) -> str:
        """Where batch `number`, counted from 1 over the run, stands."""
        if self.per_epoch is None:
            return f"batch {number} of the run"
        epoch, batch = divmod(number - 1, self.per_epoch)
        return f"epoch {epoch + 1}, batch {batch + 1} of {self.per_epoch}"

    def run(self, after_batch: Callable[[], None], after_epoch: Callable[[], None]) -> None:
        """Train from where the run is to its end, or until `stopped` is set. Within `schedule.during()`.

        A loss that is not finite, or at the end of an epoch a parameter, raises `Diverged`, unless it belongs to a
        member that `trained.diverged` names: that one takes no further part.
        """
        self.schedule.begin(self.number, self.at.epoch)
        while self.at.epoch < self.epochs and not self.stopped:
            if self._train_epoch(after_batch):
                after_epoch()

    def _train_epoch(self, after_batch: Callable[[], None]) -> bool:
        """What is left of the epoch under way; whether it came to its end."""
        self.clock = time.perf_counter()
        for batch in self.data.batches(self.at.epoch, self.at.batch):
            how: dict[str, Any] = {} if self.context is LOCAL else {"context": self.context}
            how |= {"rows": batch.rows} if self.takes_rows else {}
            if batch.of is not None:
                how |= {"first": batch.first, "of": batch.of}
            x, y = self._changed(batch)
            metrics = self.trained.step(x, y, each=self.data.each, **how)
            self.unread.append(metrics.loss.detach().reshape(-1).to(torch.float64, copy=True))
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
            after_batch()
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
            self.at = Position([0.0] * len(self.seeds), self.at.epoch + 1, self.number)
            self.schedule.after_epoch(self.at.epoch, row)
        return True

    def read(self) -> None:
        """Wait for the losses that have gathered and for news of members that diverged.

        Losses are added one by one, since a sum must not depend on when they are read. One that is not finite raises
        `Diverged`, and the position goes back to before its batch.
        """
        batches = torch.stack(self.unread).tolist() if self.unread else []
        self.unread.clear()
        self.diverged: Mapping[int, int] = self.trained.diverged
        for position, losses in enumerate(batches):
            for i, loss in enumerate(losses):
                if math.isfinite(loss):
                    self.at.losses[i] += loss
                elif i not in self.diverged:
                    self.at.batch -= len(batches) - position
                    raise Diverged("the loss")

    def demand_finite(self) -> None:
        """Raise `Diverged` for a loss or a parameter that is not finite: a loss tells of those before its step only."""
        self.read()
        self.synchronize()
        for i in self.active:
            for name, value in self.trained.member(i).named_parameters():
                if not value.isfinite().all():
                    self.at.batch -= 1
                    raise Diverged(name)

    def synchronize(self) -> None:
        """Every rank gets the weights that others have: of a method whose blocks are spread over ranks
        (`LayerParallel`), before the model is looked at."""
        for method in self.trained.methods:
            if hasattr(method, "synchronize"):
                method.synchronize()

    @contextmanager
    def off_the_clock(self) -> Iterator[None]:
        """What is done inside does not count as time spent training."""
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

    def _changed(self, batch: Batch) -> Samples:
        """The batch under way as it is learnt from, on the model's device."""
        x, y = batch.x.to(self.device), batch.y.to(self.device)
        if self.change is None:
            return x, y
        each = self.data.each
        seeds = self.seeds if each else self.seeds[:1]
        generators = [batch_generator(seed, self.at.epoch, self.at.batch) for seed in seeds]
        if not each:
            return self.change(x, y, generators[0])
        parts = [self.change(*part) for part in zip(x, y, generators, strict=True)]
        return torch.stack([x for x, _ in parts]), torch.stack([y for _, y in parts])
