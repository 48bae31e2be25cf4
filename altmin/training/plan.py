"""The plan of a run, from its settings and its data: the batches of each epoch, what is measured and when,
augmentation, learning rates."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DistributedSampler

from altmin.calculus.context import LOCAL, Context
from altmin.common.errors import demand
from altmin.runners import precision
from altmin.runners.ranks import bounds
from altmin.training import augment as augmentation
from altmin.training import evaluate
from altmin.training.config import RunConfig
from altmin.training.samples import batches_per_epoch
from altmin.training.schedule import Schedule, TorchScheduler
from altmin.training.sources import Batches, Indexed, Source, Stored, source

Batch = tuple[Tensor, Tensor, dict[str, Any]]
"""Inputs, targets, and what else the step is given: the samples' numbers as `rows`; of one rank's part of a batch, as
`of` how many samples the batch has and as `first` which of them is the part's first."""


class Epochs:
    """The batches of a run.

    Samples that have numbers come in an order of seed and epoch; ready-made batches keep their own order, the
    same for every member. seeds: one for each member. per_epoch: the batches of an epoch, None where that shows at its
    end. each: whether members have batches of their own, which then have a dimension more in front. resumes: whether a
    run can go on inside an epoch. give_rows: whether steps are given the samples' numbers. spread: this rank's number
    and how many ranks there are, where each takes its own rows only.
    """

    def __init__(self, source: Source, model: nn.Module, seeds: Sequence[int], run: RunConfig):
        for name in ("epochs", "batch_size", "epoch_batches"):
            if getattr(run, name) is not None:
                demand("fit", name, getattr(run, name), low=1, whole=True)
        self.source, self.batch_size, self.seeds = source, run.batch_size, list(seeds)
        self.resumes = not isinstance(source, Batches)
        self.each = len(set(seeds)) > 1 and self.resumes
        self.give_rows = False
        self.spread: tuple[int, int] | None = None
        self.per_epoch: int | None
        if isinstance(source, Batches):
            self.per_epoch = source.per_epoch(run)
            return
        if run.batch_size is None:
            raise ValueError("fit divides tensors and Datasets into batches: give batch_size, such as batch_size=100")
        if run.epoch_batches is not None:
            raise ValueError("epoch_batches of fit is for iterables; an epoch of tensors or a Dataset is all of them")
        self.per_epoch = batches_per_epoch(model, len(source), run.batch_size)

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """Those of an epoch from batch `start` on, counted from 0. ValueError if fewer come than were to."""
        source = self.source
        if isinstance(source, Batches):
            assert not start, "such an epoch is seen from its start"
            yield from ((x, y, {}) for x, y in source.epoch(epoch, self.per_epoch))
            return
        orders = [source.order(seed, epoch) for seed in (self.seeds if self.each else self.seeds[:1])]
        assert self.batch_size is not None
        assert self.per_epoch is not None
        for place in range(start * self.batch_size, self.per_epoch * self.batch_size, self.batch_size):
            parts = [torch.as_tensor(order[place : place + self.batch_size]) for order in orders]
            yield self._taken(source, torch.stack(parts) if self.each else parts[0])

    def _taken(self, source: Indexed | Stored, rows: Tensor) -> Batch:
        """The batch of these samples, or this rank's part of it. A batch with fewer samples than ranks is whole on each
        of them. So are all batches of a Dataset that draws from torch's random state, as all ranks have to do alike."""
        if self.spread is None or len(rows) < self.spread[1]:
            return *source.take(rows), {"rows": rows} if self.give_rows else {}
        first, end = bounds(len(rows), *self.spread)
        before = torch.get_rng_state()
        x, y = source.take(rows[first:end], len(rows))
        if torch.equal(before, torch.get_rng_state()):
            return x, y, {"first": first, "of": len(rows)}
        torch.set_rng_state(before)
        self.spread = None
        return self._taken(source, rows)

    def demand_whole(self, ranks: int) -> None:
        """ValueError for an iterable that gives each of several ranks other batches."""
        iterable = getattr(self.source, "iterable", None)
        samplers = [getattr(iterable, name, None) for name in ("sampler", "batch_sampler")]
        if ranks > 1 and any(isinstance(sampler, DistributedSampler) for sampler in samplers):
            raise ValueError("train of fit has a DistributedSampler; leave it out, since ranks share every batch")

    def settings(self) -> dict[str, Any]:
        """What distinguishes a run over these data from others."""
        size = len(self.source) if not isinstance(self.source, Batches) else self.per_epoch
        name = "number of training samples" if self.resumes else "batches of an epoch"
        return {"batch_size": self.batch_size, name: size, "training data": self.source.describe()}

    def state(self) -> list[Tensor]:
        """Random states of the data's own, at the end of an epoch."""
        return [generator.get_state() for generator in self.source.generators]

    def load(self, state: Sequence[Tensor]) -> None:
        for generator, own in zip(self.source.generators, state, strict=True):
            generator.set_state(own)


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

    def steps(self, model: nn.Module) -> int | None:
        """How many batches the run has, None if the data do not tell."""
        per_epoch = self.data(model, [self.run.seed]).per_epoch
        return None if per_epoch is None else self.run.epochs * per_epoch

    def tests(self, model: nn.Module) -> dict[str, Source]:
        """The data to evaluate on, by the prefix of its columns."""
        if self.test is None:
            return {}
        given = self.test if isinstance(self.test, Mapping) else {"test": self.test}
        found = {str(name): source(str(name), samples, model) for name, samples in given.items()}
        for name, samples in found.items():
            if isinstance(samples, Batches) and samples.once:
                raise ValueError(f"{name} of fit is needed after every epoch; give a list or a DataLoader, no iterator")
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
            raise ValueError("augment of fit is for tensors; a Dataset or a DataLoader has transforms of its own")
        return augmentation.change(self.run.augment, (data.source.x, data.source.y), methods)

    def rates(self, optimizer: Any, per_epoch: int | None, columns: Sequence[str]) -> Schedule:
        """What moves the learning rates. A torch scheduler is built here, so nothing may fail afterwards."""
        batches = None if per_epoch is None else self.run.epochs * per_epoch
        if self.run.scheduler is None:
            return Schedule(self.run.schedule, optimizer, self.run.epochs, batches, self.run.warmup)
        if self.run.schedule != "constant" or self.run.warmup:
            raise ValueError("a schedule and a torch scheduler would both move the learning rate; give one of them")
        return TorchScheduler(self.run.scheduler, optimizer, self.run.scheduler_every, columns)


def demand_context(method: Any) -> None:
    """ValueError for a method whose steps cannot round products. Wrappers pass the setting on."""
    while hasattr(method, "method"):
        method = method.method
    if "context" not in signature(method.step).parameters:
        raise ValueError(f"steps of {type(method).__name__} take no context to round products; leave out precision")
