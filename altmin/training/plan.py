"""What a run is to do: what follows from its settings and its data."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from inspect import signature
from typing import Any

from torch import nn

from altmin.calculus.context import LOCAL, Context
from altmin.common.errors import demand
from altmin.runners import precision
from altmin.training import augment as augmentation
from altmin.training import evaluate
from altmin.training.config import RunConfig
from altmin.training.epochs import Epochs
from altmin.training.schedule import Schedule, TorchScheduler
from altmin.training.sources import Batches, Source, Stored, source


@dataclass(frozen=True)
class Plan:
    """A run's settings with its data, as `fit` is given them and explains them."""

    run: RunConfig
    train: Any
    test: Any = None

    @contextmanager
    def products(self) -> Iterator[Context]:
        """Within, products have the run's precision: gives the context of its steps, `LOCAL` unless they round."""
        with nullcontext(LOCAL) if self.run.precision is None else precision.using(self.run.precision) as context:
            yield context if context.bf16 else LOCAL

    def data(self, model: nn.Module, seeds: Sequence[int]) -> Epochs:
        """The batches to learn from."""
        return Epochs(source("train", self.train, model), model, seeds, self.run)

    def tests(self, model: nn.Module) -> dict[str, Source]:
        """What to measure on, by the name with which its columns begin."""
        if self.test is None:
            return {}
        given = self.test if isinstance(self.test, Mapping) else {"test": self.test}
        found = {str(name): source(str(name), samples, model) for name, samples in given.items()}
        for name, samples in found.items():
            if isinstance(samples, Batches) and samples.once:
                raise ValueError(
                    f"{name} of fit is gone through after every epoch, and {type(samples.iterable).__name__} can be "
                    "gone through once; give a list or a DataLoader"
                )
        return found

    def measures(self, tests: Mapping[str, Source], loss: Any) -> dict[str, list[evaluate.Metric]]:
        """The metrics of each part that is measured on."""
        if not tests:
            evaluate.choose(self.run.metrics, None, loss)  # a wrong name is wrong though nothing is measured
        return {name: evaluate.choose(self.run.metrics, part.first()[1], loss) for name, part in tests.items()}

    def evaluated(self, tests: Mapping[str, Source], per_epoch: int | None) -> list[int]:
        """After which batches of the run to measure."""
        given = self.run.eval_batches
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise TypeError(f"eval_batches of fit is a list of numbers of batches, given {given!r}")
        for number in given:
            demand("fit", "each of eval_batches", number, whole=True)
        last = float("inf") if per_epoch is None else self.run.epochs * per_epoch
        for number in sorted(given):
            if not tests or not 1 <= number <= last:
                needed = f"that needs test samples, and a batch among the run's 1 to {last:g}"
                raise ValueError(f"cannot evaluate after batch {number}: {needed}")
        return sorted(set(given))

    def change(self, data: Epochs, methods: Sequence[Any]) -> augmentation.Change | None:
        """What the augmentation does to a batch."""
        if self.run.augment is None:
            return None
        if not isinstance(data.source, Stored):
            raise ValueError(
                "augment of fit changes samples that lie in tensors; a Dataset or a DataLoader changes its own, by the "
                "transforms that it has"
            )
        return augmentation.change(self.run.augment, (data.source.x, data.source.y), methods)

    def rates(self, optimizer: Any, per_epoch: int | None, columns: Sequence[str]) -> Schedule:
        """What moves the learning rates. A torch scheduler is made here, so nothing may fail afterwards."""
        batches = None if per_epoch is None else self.run.epochs * per_epoch
        if self.run.scheduler is None:
            return Schedule(self.run.schedule, optimizer, self.run.epochs, batches, self.run.warmup)
        if self.run.schedule != "constant" or self.run.warmup:
            raise ValueError("a schedule and a torch scheduler would both move the learning rate; give one of them")
        return TorchScheduler(self.run.scheduler, optimizer, self.run.scheduler_every, columns)


def demand_context(method: Any) -> None:
    """ValueError for a method whose steps cannot be told to round products. Wrappers hand on what they are told."""
    while hasattr(method, "method"):
        method = method.method
    if "context" not in signature(method.step).parameters:
        raise ValueError(
            f"steps of {type(method).__name__} do not round their products, as they take no context; give precision="
            "'float32', or leave it out"
        )
