"""The samples of a run: tensors or arrays, or ready-made batches, as from a DataLoader."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, DistributedSampler

from altmin.common.inputs import Batch, Inputs, tensors_of
from altmin.runners.ranks import bounds
from altmin.training.samples import Samples, batches_per_epoch, epoch_order, fingerprint

WANTED = (
    "a pair of tensors or arrays, a DataLoader or another iterable of batches (x, y); x of a model with several inputs "
    "is a tuple of them, or a dict by their names"
)


class Stored:
    """Inputs and targets in tensors."""

    def __init__(self, x: Batch, y: Tensor):
        self.x, self.y = x, y

    def count(self, model: nn.Module, batch_size: int) -> int | None:
        """Return the number of batches in a pass, None if that is not known before."""
        return batches_per_epoch(model, len(self.x), batch_size)

    def take(self, rows: Tensor) -> Samples:
        """Return the samples with these numbers, which may be of any shape."""
        rows = rows.to(self.x.device)
        return self.x[rows], self.y[rows]

    def parts(self, labels: int) -> Iterator[Samples]:
        """Yield all samples in order, in parts of about `labels` labels."""
        places = 1 if self.y.is_floating_point() else max(1, self.y[0].numel())
        rows = -(-labels // places)
        return zip(self.x.split(rows), self.y.split(rows), strict=True)

    def first(self) -> Samples:
        """Return one or more samples, to determine their kind."""
        return self.x[:1], self.y[:1]

    def describe(self) -> str:
        return fingerprint((self.x, self.y))


class Batches:
    """An iterable of batches (x, y), which each pass begins anew."""

    def __init__(self, name: str, iterable: Iterable[Any], dtype: torch.dtype):
        self.name, self.iterable, self.dtype = name, iterable, dtype

    def count(self, model: nn.Module | None = None, batch_size: int = 0) -> int | None:
        try:
            return len(self.iterable)  # type: ignore[arg-type]
        except TypeError:  # also an iterable Dataset's DataLoader says so
            return None

    def parts(self, labels: int = 0) -> Iterator[Samples]:
        return (as_batch(self.name, batch, self.dtype) for batch in self.iterable)

    def first(self) -> Samples:
        with torch.random.fork_rng([]):
            return next(self.parts())

    def describe(self) -> str:
        size = getattr(self.iterable, "batch_size", None)
        return f"{type(self.iterable).__name__} of {self.count()} batches{'' if size is None else f' of {size}'}"


Source = Stored | Batches


def source(name: str, samples: Any, model: nn.Module) -> Source:
    """Return a source of `samples` for a model that is trained or evaluated on them; name: the argument of `fit`.

    Arrays become tensors: floating ones of the model's type, since numpy's own is no choice, labels int64. TypeError or
    ValueError for an object without samples, or for samples that are not finite.
    """
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.get_default_dtype())
    if isinstance(samples, Sequence) and len(samples) == 2 and _is_input(samples[0]) and _is_array(samples[1]):
        x, y = (_as_tensor(part, dtype) for part in samples)
        _check_samples(name, x, y)
        return Stored(x, y)
    sampler = getattr(samples, "sampler", None)
    if isinstance(sampler, DistributedSampler):
        raise ValueError(f"{name} of fit has a DistributedSampler; leave it out, since ranks share every batch")
    pair = isinstance(samples, tuple) and len(samples) == 2
    no_batches = isinstance(samples, str | bytes | Mapping | Dataset) or pair or _is_array(samples)
    if no_batches or not isinstance(samples, Iterable):
        raise TypeError(f"{name} of fit is {WANTED}; given {type(samples).__name__}")
    return Batches(name, samples, dtype)


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor) or (hasattr(value, "__array__") and hasattr(value, "shape"))


def _is_input(value: Any) -> bool:
    """Return whether this is an input of a model: an array, or several in a tuple, list or dict."""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else None
    return _is_array(value) if parts is None else bool(len(parts)) and all(map(_is_array, parts))


def _as_tensor(value: Any, dtype: torch.dtype) -> Any:
    """Return a tensor as it is; an array as one, floating numbers in the given type and others as int64; several of
    them as `Inputs`."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Mapping):
        return Inputs({key: _as_tensor(part, dtype) for key, part in value.items()})
    if isinstance(value, tuple | list):
        return Inputs([_as_tensor(part, dtype) for part in value])
    array = np.require(np.asarray(value), requirements=["C", "W"])
    return torch.as_tensor(array).to(dtype if array.dtype.kind == "f" else torch.int64)


def as_batch(name: str, batch: Any, dtype: torch.dtype = torch.float32) -> Samples:
    """Return a batch as inputs and targets; TypeError or ValueError for one that is not, or that has not as many
    targets as inputs."""
    if not isinstance(batch, Sequence) or len(batch) != 2 or not _is_input(batch[0]) or not _is_array(batch[1]):
        raise TypeError(f"a batch of {name} is a pair of inputs and targets, given {type(batch).__name__}")
    x, y = (_as_tensor(part, dtype) for part in batch)
    if not y.ndim or len(x) != len(y):
        raise ValueError(f"a batch of {name} has {len(x)} samples and targets of {tuple(y.shape)}; give one a sample")
    return x, y


def _check_samples(name: str, x: Batch, y: Tensor) -> None:
    if not y.ndim or len(x) != len(y) or not len(y):
        raise ValueError(f"{name} of fit has {len(x)} samples and targets of shape {tuple(y.shape)}")
    for what, t in (*(("inputs", t) for t in tensors_of(x)), ("targets", y)):
        if not bool(t.isfinite().all()):
            raise ValueError(f"the {what} of {name} hold NaN or infinite values; clean them before training")


class Epochs:
    """The batches of a run's epochs.

    Stored samples come in an order of seed and epoch; ready-made batches keep their own order, the same for every
    member. seeds: one for each member. per_epoch: the batches of an epoch, None where that shows at its end.
    per_member: whether each member has its own batches, with a dimension more in front. resumes: whether a run
    can resume inside an epoch. give_rows: whether steps are given the samples' numbers. spread: this rank's number and
    how many ranks there are, where each takes its rows of stored samples only.
    """

    def __init__(self, source: Source, model: nn.Module, seeds: Sequence[int], batch_size: int | None):
        self.source, self.seeds, self.batch_size = source, list(seeds), batch_size or 0
        self.resumes = isinstance(source, Stored)
        self.per_member = self.resumes and len(set(seeds)) > 1
        self.give_rows, self.spread = False, (0, 1)
        if self.resumes != bool(batch_size):
            raise ValueError("batch_size of fit divides tensors and arrays; an iterable gives batches and takes none")
        self.per_epoch = source.count(model, self.batch_size)

    def batches(self, epoch: int, start: int) -> Iterator[tuple[Any, Tensor, dict[str, Any]]]:
        """Yield the batches of an epoch from batch `start` on, counted from 0: inputs, targets, and what else the step
        is given: `rows`, or of one rank's part of a batch its `first` sample and `of` how many samples it is.
        ValueError for an epoch without batches."""
        if isinstance(self.source, Batches):
            number = -1
            for number, (x, y) in enumerate(self.source.parts()):
                if number >= start:
                    yield x, y, {}
            if number < 0:
                raise ValueError(f"train of fit gave no batches in epoch {epoch + 1}; an iterator is gone through once")
            return
        orders = [
            epoch_order(len(self.source.x), seed, epoch) for seed in (self.seeds if self.per_member else self.seeds[:1])
        ]
        assert self.per_epoch is not None
        for place in range(start * self.batch_size, self.per_epoch * self.batch_size, self.batch_size):
            parts = [order[place : place + self.batch_size] for order in orders]
            yield self._batch(torch.stack(parts) if self.per_member else parts[0])

    def _batch(self, rows: Tensor) -> tuple[Any, Tensor, dict[str, Any]]:
        """Return the batch of these samples, or this rank's part of it. A batch with fewer samples than ranks is whole
        on each of them."""
        assert isinstance(self.source, Stored)
        if self.spread[1] == 1 or len(rows) < self.spread[1]:
            return *self.source.take(rows), {"rows": rows} if self.give_rows else {}
        first, end = bounds(len(rows), *self.spread)
        return *self.source.take(rows[first:end]), {"first": first, "of": len(rows)}
