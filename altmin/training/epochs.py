"""How a run goes over its training data: the batches of each epoch, and from where in it a run can go on."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DistributedSampler

from altmin.common.errors import demand
from altmin.runners.ranks import bounds
from altmin.training.samples import batches_per_epoch
from altmin.training.sources import Batches, Indexed, Source, Stored


class Batch(NamedTuple):
    """Inputs and targets; rows: the samples' numbers, where they have some. For members of an ensemble that each have a
    batch of their own, all of them have a dimension more in front. Of one rank's part of a batch, of: how many samples
    the batch has, first: which of them is the part's first; else None."""

    x: Tensor
    y: Tensor
    rows: Tensor | None
    first: int | None = None
    of: int | None = None


class Epochs:
    """The batches of a run.

    Samples that have numbers come in an order of seed and epoch; batches that somebody else makes come as they do, the
    same for every member. seeds: one for each member. per_epoch: the batches of an epoch, None where that shows at its
    end. each: whether members have batches of their own. resumes: whether a run can go on inside an epoch. spread: this
    rank's number and how many ranks there are, where each takes its own rows only.
    """

    def __init__(
        self,
        source: Source,
        model: nn.Module,
        seeds: Sequence[int],
        epochs: int,
        batch_size: int | None,
        epoch_batches: int | None,
    ):
        demand("fit", "epochs", epochs, low=1, whole=True)
        self.source, self.batch_size, self.seeds = source, batch_size, list(seeds)
        self.per_epoch: int | None
        self.each = len(set(seeds)) > 1 and not isinstance(source, Batches)
        self.resumes = not isinstance(source, Batches)
        self.spread: tuple[int, int] | None = None
        if epoch_batches is not None:
            demand("fit", "epoch_batches", epoch_batches, low=1, whole=True)
        if isinstance(source, Batches):
            if batch_size is not None:
                raise ValueError(
                    f"batch_size of fit is for tensors and Datasets, and this {type(source.iterable).__name__} gives "
                    "its batches itself; leave it out"
                )
            if source.once and epochs > 1 and epoch_batches is None:
                raise ValueError(
                    f"{epochs} epochs cannot be made of {type(source.iterable).__name__}, which can be gone through "
                    "once; give a list or a DataLoader, or with epoch_batches the number of batches of an epoch"
                )
            self.per_epoch = source.count if epoch_batches is None else epoch_batches
            if self.per_epoch == 0:
                raise ValueError("train of fit has no batches")
            return
        if batch_size is None:
            raise ValueError("fit divides tensors and Datasets into batches: give batch_size, such as batch_size=100")
        demand("fit", "batch_size", batch_size, low=1, whole=True)
        self.per_epoch = batches_per_epoch(model, len(source), batch_size)
        if epoch_batches is not None:
            raise ValueError("epoch_batches of fit is for iterables; an epoch of tensors or a Dataset is all of them")

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """Those of an epoch from batch `start` on, counted from 0. ValueError if fewer come than were to."""
        source = self.source
        if isinstance(source, Batches):
            assert not start, "such an epoch is seen from its start"
            number = 0
            for x, y in source.passed(epoch, self.per_epoch):
                number += 1
                yield Batch(x, y, None)
            if number < (self.per_epoch or 1):
                wanted = "at least 1" if self.per_epoch is None else self.per_epoch
                raise ValueError(
                    f"train of fit gave {number} batches in epoch {epoch + 1}, and {wanted} were to come; give an "
                    "iterable that begins anew each time, such as a DataLoader, or fewer epochs"
                )
            return
        orders = [source.order(seed, epoch) for seed in (self.seeds if self.each else self.seeds[:1])]
        assert self.batch_size is not None
        assert self.per_epoch is not None
        for place in range(start * self.batch_size, self.per_epoch * self.batch_size, self.batch_size):
            parts = [order[place : place + self.batch_size] for order in orders]
            yield self._taken(source, torch.stack(parts) if self.each else parts[0])

    def _taken(self, source: Indexed | Stored, rows: Tensor) -> Batch:
        """The batch of these samples, or this rank's part of it. A batch with fewer samples than ranks is whole on each
        of them. So are all batches of a Dataset that draws from torch's random state, as all ranks have to do alike."""
        if self.spread is None or len(rows) < self.spread[1]:
            return Batch(*source.take(rows), rows)
        first, end = bounds(len(rows), *self.spread)
        before = torch.get_rng_state()
        own = Batch(*source.take(rows[first:end], len(rows)), rows[first:end], first, len(rows))
        if torch.equal(before, torch.get_rng_state()):
            return own
        torch.set_rng_state(before)
        self.spread = None
        return self._taken(source, rows)

    def demand_whole(self, ranks: int) -> None:
        """ValueError for an iterable that gives each of several ranks other batches."""
        iterable = getattr(self.source, "iterable", None)
        samplers = [getattr(iterable, name, None) for name in ("sampler", "batch_sampler")]
        if ranks > 1 and any(isinstance(sampler, DistributedSampler) for sampler in samplers):
            raise ValueError(
                "train of fit has a DistributedSampler, which gives each rank other batches; leave it out, since every "
                "batch is shared out among the ranks"
            )

    def settings(self) -> dict[str, Any]:
        """What tells a run over these data from others."""
        found: dict[str, Any] = {"batch_size": self.batch_size}
        if isinstance(self.source, Batches):
            found["batches of an epoch"] = self.per_epoch
        else:
            found["number of training samples"] = len(self.source)
        return {**found, "training data": self.source.describe()}

    def state(self) -> list[Tensor]:
        """Random states of the data's own, at the end of an epoch."""
        return [g.get_state() for g in self.source.generators] if isinstance(self.source, Batches) else []

    def load(self, state: Sequence[Tensor]) -> None:
        if isinstance(self.source, Batches):
            for generator, own in zip(self.source.generators, state, strict=True):
                generator.set_state(own)
