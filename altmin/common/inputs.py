"""Mini-batches of models with several inputs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Inputs:
    """The tensors that a model takes together, with one row for each sample: in the order of its arguments, or by their
    names.

    >>> batch = Inputs({"tokens": torch.zeros(4, 3), "mask": torch.ones(4, 3)})
    >>> len(batch), len(batch[1:3]), [tuple(t.shape) for t in batch[:2].tensors]
    (4, 2, [(2, 3), (2, 3)])
    """

    def __init__(self, tensors: Sequence[Tensor] | Mapping[str, Tensor]):
        self.names = tuple(tensors) if isinstance(tensors, Mapping) else None
        self.tensors = tuple(tensors.values() if isinstance(tensors, Mapping) else tensors)
        wrong = [type(t).__name__ for t in self.tensors if not isinstance(t, Tensor)]
        if wrong or not self.tensors:
            raise TypeError(
                f"the inputs of a model are tensors, given {', '.join(wrong) or 'none'}; use torch.as_tensor"
            )
        rows = [len(t) if t.ndim else None for t in self.tensors]
        if len(set(rows)) > 1 or None in rows:
            shapes = ", ".join(str(tuple(t.shape)) for t in self.tensors)
            raise ValueError(f"the inputs of a model have one row for each sample, given shapes {shapes}")

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, rows: Any) -> "Inputs":
        return self.map(lambda t: t[rows])

    def map(self, f: Callable[[Tensor], Tensor]) -> "Inputs":
        """Apply f to every tensor."""
        results = [f(t) for t in self.tensors]
        return Inputs(results if self.names is None else dict(zip(self.names, results, strict=True)))

    def to(self, *args: Any, **kwargs: Any) -> "Inputs":
        return self.map(lambda t: t.to(*args, **kwargs))

    def clone(self) -> "Inputs":
        return self.map(torch.clone)

    def split(self, rows: int) -> list["Inputs"]:
        return [self[first : first + rows] for first in range(0, len(self), rows)]

    @property
    def device(self) -> torch.device:
        return self.tensors[0].device

    @property
    def shape(self) -> torch.Size:
        """Shape of the first tensor."""
        return self.tensors[0].shape

    def call(self, model: nn.Module) -> Any:
        """The model's output."""
        if self.names is None:
            return model(*self.tensors)
        return model(**dict(zip(self.names, self.tensors, strict=True)))

    def ordered(self, names: Sequence[str], leading: bool) -> "Inputs":
        """Return the inputs in the order of these names. leading: whether they are the first arguments of the model;
        otherwise inputs without names are refused."""
        if self.names is None and leading and len(self.tensors) == len(names):
            return self
        if self.names is None or set(self.names) != set(names):
            raise ValueError(
                f"the model was cut for the inputs ({', '.join(names)}); give these by name, in a dict, or name others "
                "when the trainer is built: inputs=[...]"
            )
        of = dict(zip(self.names, self.tensors, strict=True))
        return Inputs([of[name] for name in names])


Batch = Tensor | Inputs


def as_inputs(x: Any) -> Any:
    """Return a tuple, list or dict of tensors as `Inputs`, anything else as it is."""
    several = isinstance(x, tuple | list) and any(isinstance(t, Tensor) for t in x)
    return Inputs(x) if several or isinstance(x, Mapping) else x


def tensors_of(x: Any) -> tuple[Tensor, ...]:
    """The tensors of a mini-batch's input."""
    return x.tensors if isinstance(x, Inputs) else (x,)


def call(model: nn.Module, x: Any) -> Any:
    """The model's output for a mini-batch."""
    return x.call(model) if isinstance(x, Inputs) else model(x)
