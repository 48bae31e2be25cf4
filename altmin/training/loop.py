"""The training loop, of one model or of many at once: epochs, batches, schedule, evaluations, losses and the clock."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from altmin.errors import Diverged, demand
from altmin.methods.protocol import Method
from altmin.training.augment import Given, change
from altmin.training.evaluate import Evaluation, choose
from altmin.training.samples import Samples, batch_generator, batches_per_epoch, device_of, epoch_order
from altmin.training.schedule import Schedule


@dataclass
class History:
    """What a run measured: rows as they stand in the JSON that `dataclasses.asdict` gives."""

    batches: list[dict[str, Any]] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Position:
    """Epochs done; of the one under way the batches done, the sum of each member's losses, and the seconds."""

    losses: list[float]
    epoch: int = 0
    batch: int = 0
    seconds: float = 0.0


class Single:
    """One method in the form of an ensemble with one member, which is what the loop trains."""

    diverged: Mapping[int, int] = {}

    def __init__(self, method: Method):
        self.methods, self.optimizer = [method], method.optimizer

    def member(self, i: int) -> nn.Module:
        """Asked of the method anew each time, since a recorded one then does the steps it has put off."""
        return self.methods[i].model

    def step(self, x: Tensor, y: Tensor, each: bool, **how: Any) -> Any:
        return self.methods[0].step(x, y, **how)

    def end_epoch(self) -> None:
        self.methods[0].end_epoch()


class Loop:
    """A run of `trained`, an `Ensemble` or a `Single`, over the data, and where it is.

    histories: one for each member; rows are added to those of members that have not diverged. seeds: one for each
    member, which give the orders in which they see the data. The other arguments are those of `fit`.
    """

    def __init__(
        self,
        trained: Any,
        histories: Sequence[History],
        seeds: Sequence[int],
        train: Samples,
        test: Samples | None,
        epochs: int,
        batch_size: int,
        eval_batches: Sequence[int],
        schedule: str,
        evaluate: Evaluation | None,
        measure: str | None,
        augment: Given = None,
        warmup: int = 0,
    ):
        model = trained.member(0)
        self.per_epoch, self.eval_batches = check(model, train, test, epochs, batch_size, eval_batches)
        self.trained, self.histories, self.seeds = trained, list(histories), list(seeds)
        self.train, self.test, self.epochs, self.batch_size = train, test, epochs, batch_size
        self.measures = choose(measure, evaluate, test, trained)
        self.change = change(augment, train, trained.methods)
        self.schedule = Schedule(schedule, trained.optimizer, epochs, epochs * self.per_epoch, warmup)
        self.device = device_of(model)
        self.takes_rows = any(getattr(method, "takes_rows", False) for method in trained.methods)
        self.at = Position([0.0] * len(self.seeds))
        self.unread: list[Tensor] = []
        self.clock = time.perf_counter()
        self.read()

    @property
    def number(self) -> int:
        """Batches done since the run began."""
        return self.at.epoch * self.per_epoch + self.at.batch

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
        return self.place(self.number + (self.at.batch < self.per_epoch))

    def place(self, number: int) -> str:
        """Where batch `number`, counted from 1 over the run, stands."""
        epoch, batch = divmod(number - 1, self.per_epoch)
        return f"epoch {epoch + 1}, batch {batch + 1} of {self.per_epoch}"

    def run(self, after_batch: Callable[[], None], after_epoch: Callable[[], None] = lambda: None) -> None:
        """Train from where the run is to its end. Whatever happens, the optimizer has its first rate again.

        A loss that is not finite, or at the end of an epoch a parameter, raises `Diverged`, unless it belongs to a
        member that `trained.diverged` names: that one takes no further part.
        """
        with self.schedule.during(self.number, self.at.epoch):
            while self.at.epoch < self.epochs:
                self._train_epoch(after_batch)
                after_epoch()

    def _train_epoch(self, after_batch: Callable[[], None]) -> None:
        """What is left of the epoch under way."""
        self.clock = time.perf_counter()
        x, y = self.train
        each = len(set(self.seeds)) > 1
        orders = [epoch_order(len(x), seed, self.at.epoch) for seed in (self.seeds if each else self.seeds[:1])]
        order = (torch.stack(orders) if each else orders[0]).to(x.device)
        for rows in order.split(self.batch_size, -1)[self.at.batch : self.per_epoch]:
            how: dict[str, Any] = {"rows": rows} if self.takes_rows else {}
            batch = self._changed(x[rows].to(self.device), y[rows].to(self.device), each)
            metrics = self.trained.step(*batch, each=each, **how)
            self.unread.append(metrics.loss.detach().reshape(-1).to(torch.float64, copy=True))
            self.at.batch += 1
            self.schedule.after_batch(self.number)
            if self.device.type == "cpu" or self.at.batch % 50 == 1:  # reading makes the host wait for a GPU
                self.read()
            if self.number in self.eval_batches:
                with self.off_the_clock():
                    self.read()
                    for i in self.active:
                        self.histories[i].batches.append({"batch": self.number, **self._measured(i)})
            after_batch()
        self.trained.end_epoch()
        self.schedule.after_epoch(self.at.epoch + 1)
        with self.off_the_clock():
            self.demand_finite()
            for i in self.active:
                row = {"epoch": self.at.epoch + 1, "train_loss": self.at.losses[i] / self.per_epoch}
                row |= {**self._measured(i), "seconds": self.at.seconds / len(self.seeds)}
                self.histories[i].epochs.append(row)
            self.at = Position([0.0] * len(self.seeds), self.at.epoch + 1)

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
        for i in self.active:
            for name, value in self.trained.member(i).named_parameters():
                if not value.isfinite().all():
                    self.at.batch -= 1
                    raise Diverged(name)

    @contextmanager
    def off_the_clock(self) -> Iterator[None]:
        """What is done inside does not count as time spent training."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.at.seconds += time.perf_counter() - self.clock
        yield
        self.clock = time.perf_counter()

    def _measured(self, i: int) -> dict[str, float]:
        if self.test is None:
            return {}
        return {name: evaluate(self.trained.member(i), self.test) for name, evaluate in self.measures.items()}

    def _changed(self, x: Tensor, y: Tensor, each: bool) -> Samples:
        """The batch under way as it is learnt from; each: x and y have a part for every member."""
        if self.change is None:
            return x, y
        seeds = self.seeds if each else self.seeds[:1]
        generators = [batch_generator(seed, self.at.epoch, self.at.batch) for seed in seeds]
        if not each:
            return self.change(x, y, generators[0])
        parts = [self.change(*part) for part in zip(x, y, generators, strict=True)]
        return torch.stack([x for x, _ in parts]), torch.stack([y for _, y in parts])


def check_samples(name: str, samples: Any) -> None:
    """TypeError or ValueError unless these are inputs and targets, as many of the one as of the other, and finite."""
    pair = isinstance(samples, Sequence) and len(samples) == 2
    if not pair or not all(isinstance(t, Tensor) for t in samples):
        given = [type(t).__name__ for t in samples] if pair else type(samples).__name__
        raise TypeError(
            f"{name} of fit is a pair of tensors, inputs and targets, given {given}; use torch.as_tensor, or for a "
            "DataLoader a loop of your own over method.step(x, y)"
        )
    x, y = samples
    if not len(x):
        raise ValueError(f"{name} of fit has no samples")
    if len(x) != len(y):
        raise ValueError(f"there are {len(x)} samples but {len(y)} labels")
    for what, t in (("inputs", x), ("targets", y)):
        if t.is_meta or t.layout != torch.strided:
            raise ValueError(f"the {what} of {name} are on the meta device or sparse; give dense ones with numbers")
        if not bool(t.isfinite().all()):
            raise ValueError(f"the {what} of {name} hold NaN or infinite values; clean them before training")


def check(
    model: nn.Module, train: Samples, test: Samples | None, epochs: int, batch_size: int, eval_batches: Sequence[int]
) -> tuple[int, list[int]]:
    """How many batches an epoch has, and after which to evaluate; a `ValueError` for a run that cannot be."""
    demand("fit", "epochs", epochs, low=1, whole=True)
    demand("fit", "batch_size", batch_size, low=1, whole=True)
    for name, samples in (("train", train), *((("test", test),) if test is not None else ())):
        check_samples(name, samples)
    if not isinstance(eval_batches, Sequence) or isinstance(eval_batches, str):
        raise TypeError(f"eval_batches of fit is a list of numbers of batches, given {eval_batches!r}")
    for number in eval_batches:
        demand("fit", "each of eval_batches", number, whole=True)
    per_epoch = batches_per_epoch(model, len(train[0]), batch_size)
    evaluated = sorted(set(eval_batches))
    for number in evaluated:
        if test is None or not 1 <= number <= epochs * per_epoch:
            needed = f"that needs test samples, and a batch among the run's 1 to {epochs * per_epoch}"
            raise ValueError(f"cannot evaluate after batch {number}: {needed}")
    return per_epoch, evaluated
