"""The sources of samples: tensors or arrays, a Dataset, or ready-made batches, as from a DataLoader."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset, default_collate

from altmin.common.describe import kind
from altmin.common.inputs import Batch, Inputs, tensors_of
from altmin.training.config import RunConfig
from altmin.training.samples import Samples, epoch_order, fingerprint

PART = 256
"""Samples of a Dataset that an evaluation takes at once."""
WANTED = "a pair of tensors or arrays, a Dataset, a DataLoader or another iterable of batches (x, y)"
SEVERAL = "x of a model with several inputs is a tuple of them, or a dict by their names"


class Stored:
    """Inputs and targets in tensors."""

    generators: Sequence[torch.Generator] = ()

    def __init__(self, x: Batch, y: Tensor):
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def order(self, seed: int, epoch: int) -> Tensor:
        """Of the samples in an epoch, on their device."""
        return epoch_order(len(self), seed, epoch).to(self.x.device)

    def take(self, rows: Tensor, of: int | None = None) -> Samples:
        """The samples of these numbers, of any shape. of: how many all ranks take together, if there are others."""
        rows = rows.to(self.x.device)
        return self.x[rows], self.y[rows]

    def parts(self, labels: int) -> Iterator[Samples]:
        """All samples in order, in parts of about `labels` labels."""
        places = 1 if self.y.is_floating_point() else max(1, self.y[0].numel())
        rows = -(-labels // places)
        return zip(self.x.split(rows), self.y.split(rows), strict=True)

    def first(self) -> Samples:
        """One or more samples, to determine their kind."""
        return self.x[:1], self.y[:1]

    def describe(self) -> str:
        return fingerprint((self.x, self.y))


class Indexed:
    """A torch Dataset that gives the sample of a number; samples become batches as in a DataLoader."""

    generators: Sequence[torch.Generator] = ()

    def __init__(self, name: str, dataset: Any):
        self.name, self.dataset = name, dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def order(self, seed: int, epoch: int) -> Tensor:
        return epoch_order(len(self), seed, epoch)

    def take(self, rows: Tensor, of: int | None = None) -> Samples:
        if rows.ndim > 1:
            parts = [self.take(own) for own in rows]
            return torch.stack([x for x, _ in parts]), torch.stack([y for _, y in parts])
        numbers = rows.tolist()
        many = getattr(self.dataset, "__getitems__", None)
        items = many(numbers) if many else [self.dataset[i] for i in numbers]
        return as_batch(self.name, default_collate(items))

    def parts(self, labels: int) -> Iterator[Samples]:
        return (self.take(rows) for rows in torch.arange(len(self)).split(PART))

    def first(self) -> Samples:
        return self.take(torch.zeros(1, dtype=torch.int64))

    def describe(self) -> str:
        """Not by its samples: a Dataset may change them at random."""
        return f"{type(self.dataset).__name__} of {len(self)} samples"


class Batches:
    """An iterable of batches (x, y). Each pass starts from the beginning, unless it is an iterator, which continues."""

    def __init__(self, name: str, iterable: Iterable[Any], dtype: torch.dtype):
        self.name, self.iterable, self.dtype = name, iterable, dtype
        self.once = isinstance(iterable, Iterator)

    @property
    def count(self) -> int | None:
        """Batches in a pass, if that is known before."""
        try:
            return len(self.iterable)  # type: ignore[arg-type]
        except TypeError:  # also an iterable Dataset's DataLoader says so
            return None

    def per_epoch(self, run: RunConfig) -> int | None:
        """Batches in an epoch of a run, if that is known. ValueError for settings that do not go with an iterable."""
        name = type(self.iterable).__name__
        if run.batch_size is not None:
            raise ValueError(f"batch_size of fit is for tensors and Datasets, and this {name} gives its batches itself")
        if self.once and run.epochs > 1 and run.epoch_batches is None:
            raise ValueError(
                f"{run.epochs} epochs cannot be made of {name}, which can be gone through once; give a list or a "
                "DataLoader, or with epoch_batches the number of batches of an epoch"
            )
        found = self.count if run.epoch_batches is None else run.epoch_batches
        if found == 0:
            raise ValueError(f"{self.name} of fit has no batches")
        return found

    def epoch(self, epoch: int, count: int | None) -> Iterator[Samples]:
        """The batches of an epoch, `count` of them if that is known. ValueError if fewer come."""
        number = 0
        for batch in self.passed(epoch, count):
            number += 1
            yield batch
        if number < (count or 1):
            raise ValueError(
                f"{self.name} of fit gave {number} batches in epoch {epoch + 1}, and {count or 'at least 1'} were to "
                "come; give an iterable that starts again each time, such as a DataLoader, or fewer epochs"
            )

    def passed(self, epoch: int, most: int | None) -> Iterator[Samples]:
        """The batches of one pass, at most `most`."""
        for part in ("sampler", "batch_sampler"):
            tell = getattr(getattr(self.iterable, part, None), "set_epoch", None)
            if tell:  # of a sampler that several processes share
                tell(epoch)
        for batch in itertools.islice(iter(self.iterable), most):
            yield as_batch(self.name, batch, self.dtype)

    def parts(self, labels: int) -> Iterator[Samples]:
        return self.passed(0, None)

    def first(self) -> Samples:
        """Leaves no trace in random states."""
        states = [g.get_state() for g in self.generators]
        with torch.random.fork_rng([]):
            found = next(self.passed(0, 1), None)
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state)
        if found is None:
            raise ValueError(f"{self.name} of fit has no batches")
        return found

    @property
    def generators(self) -> list[torch.Generator]:
        """Of random numbers, which a DataLoader has of its own."""
        owners = (self.iterable, getattr(self.iterable, "sampler", None))
        held = [getattr(owner, "generator", None) for owner in owners]
        return list({id(g): g for g in held if isinstance(g, torch.Generator)}.values())

    def describe(self) -> str:
        size = getattr(self.iterable, "batch_size", None)
        of = "" if self.count is None else f" of {self.count} batches"
        return f"{type(self.iterable).__name__}{of}{'' if size is None else f' of {size}'}"


Source = Stored | Indexed | Batches


def source(name: str, given: Any, model: nn.Module) -> Source:
    """What `given` is, for a model that is to learn from it or be measured on it; name: the argument of `fit`.

    Arrays become tensors: floating ones of the model's type, since numpy's own is no choice, labels int64. TypeError or
    ValueError, in one sentence, for what holds no samples, or some that are not finite.
    """
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.get_default_dtype())
    if isinstance(given, Sequence) and len(given) == 2 and _is_input(given[0]) and _array(given[1]):
        x, y = (as_tensor(name, part, dtype) for part in given)
        check_samples(name, x, y)
        return Stored(x, y)
    if type(given) is TensorDataset and len(given.tensors) == 2:
        return source(name, given.tensors, model)
    if isinstance(given, Dataset) and not isinstance(given, IterableDataset) and hasattr(given, "__len__"):
        if not len(given):
            raise ValueError(f"{name} of fit has no samples")
        return Indexed(name, given)
    if isinstance(given, IterableDataset):
        raise TypeError(f"{name} of fit gives samples one by one; give a DataLoader(dataset, batch_size=...) of it")
    text = isinstance(given, str | bytes | Mapping)
    pair = isinstance(given, tuple) and len(given) == 2  # a pair, with one part or both not arrays
    alone = _array(given)
    if text or alone or pair or not isinstance(given, Iterable):
        said = [type(part).__name__ for part in given] if pair else type(given).__name__
        raise TypeError(f"{name} of fit is {WANTED}, given {said}; {SEVERAL}")
    return Batches(name, given, dtype)


def _array(value: Any) -> bool:
    return isinstance(value, Tensor) or (hasattr(value, "__array__") and hasattr(value, "shape"))


def _is_input(value: Any) -> bool:
    """Whether this is an input of a model: an array, or several in a tuple, list or dict."""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else None
    return _array(value) if parts is None else bool(len(parts)) and all(map(_array, parts))


def as_tensor(name: str, value: Any, dtype: torch.dtype) -> Any:
    """A tensor as it is; an array as one, floating numbers in the given type and others as int64; several of them as
    `Inputs`."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Mapping):
        return Inputs({key: as_tensor(name, each, dtype) for key, each in value.items()})
    if isinstance(value, tuple | list):
        return Inputs([as_tensor(name, each, dtype) for each in value])
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} of fit holds {array.dtype} where numbers are needed; encode them first")
    wanted = dtype if array.dtype.kind == "f" else torch.int64
    return torch.as_tensor(np.require(array, requirements=["C", "W"])).to(wanted)


def as_batch(name: str, batch: Any, dtype: torch.dtype = torch.float32) -> Samples:
    """A batch as two tensors, as many targets as inputs; TypeError or ValueError for one that is not."""
    pair = isinstance(batch, Sequence) and len(batch) == 2
    if not pair or not _is_input(batch[0]) or not _array(batch[1]):
        said = [type(part).__name__ for part in batch] if isinstance(batch, tuple | list) else type(batch).__name__
        raise TypeError(f"a batch of {name} is a pair of tensors, inputs and targets, given {said!s:.80}; {SEVERAL}")
    x, y = (as_tensor(name, part, dtype) for part in batch)
    if isinstance(x, Inputs) and len(x) != len(y):
        raise ValueError(f"a batch of {name} has {len(x)} samples and {kind(y)} targets; give one target a sample")
    if isinstance(x, Tensor) and (not x.ndim or not y.ndim or len(x) != len(y)):
        raise ValueError(f"a batch of {name} has {kind(x)} inputs and {kind(y)} targets; give one target a sample")
    return x, y


def check_samples(name: str, x: Batch, y: Tensor) -> None:
    """ValueError unless these are inputs and targets, as many of the one as of the other, and finite."""
    if not all(t.ndim for t in (*tensors_of(x), y)) or not len(x):
        raise ValueError(f"{name} of fit has no samples")
    if len(x) != len(y):
        raise ValueError(f"there are {len(x)} samples but {len(y)} labels")
    for what, t in (*(("inputs", t) for t in tensors_of(x)), ("targets", y)):
        if t.is_meta or t.layout != torch.strided:
            raise ValueError(f"the {what} of {name} are on the meta device or sparse; give dense ones with numbers")
        if not bool(t.isfinite().all()):
            raise ValueError(f"the {what} of {name} hold NaN or infinite values; clean them before training")
