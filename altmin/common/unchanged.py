"""Contexts that restore an object at their end: a model that is tried or evaluated, one that fails to change."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn

T = TypeVar("T")


@contextmanager
def same_attributes(model: nn.Module) -> Iterator[list[tuple[str, Any]]]:
    """Restore the attributes of a model's modules at the end, modes, parameters, buffers and lists among them. The list
    yielded then has the names of those that had changed, and their values before.

    >>> layer = nn.Linear(2, 2)
    >>> with same_attributes(layer) as changed:
    ...     layer.in_features = 3
    >>> layer.in_features, changed
    (2, [('in_features', 2)])
    """
    dicts = [d for m in model.modules() for d in (vars(m), m._parameters, m._buffers, m._modules)]
    before: list[dict[str, Any]] = [dict(d) for d in dicts]
    lists = [(value, value.copy()) for attributes in before for value in attributes.values() if type(value) is list]
    changed: list[tuple[str, Any]] = []
    try:
        yield changed
    finally:
        for value, items in lists:
            value[:] = items
        for now, then in zip(dicts, before, strict=True):
            changed += [
                (name, then.get(name)) for name in then | now if then.get(name, dicts) is not now.get(name, dicts)
            ]
            now.clear()
            now.update(then)


@contextmanager
def same_buffers(model: nn.Module) -> Iterator[None]:
    """Restore the numbers in a model's buffers at the end."""
    before = [(b, b.clone()) for b in model.buffers()]
    try:
        yield
    finally:
        for b, value in before:
            b.copy_(value)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Set the model to evaluation mode and record no gradient within; at the end restore the mode of each module and
    torch's random state."""
    modes = {module: module.training for module in model.modules()}
    devices = {p.device for p in model.parameters() if p.is_cuda}
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices):
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def changed(owner: T, *deep: str) -> Iterator[T]:
    """Yield a copy of an object, whose attributes become the object's own at the end; after an error it is as before.

    deep: names of attributes that are changed in place within, which are copied in depth. All others are shared with
    the object: within, they may be replaced, not changed.

    >>> class Counter:
    ...     count = 0
    >>> counter = Counter()
    >>> with changed(counter) as new:
    ...     new.count += 1
    >>> counter.count
    1
    """
    new, memo = object.__new__(type(owner)), dict[int, Any]()
    copies = {name: copy.deepcopy(vars(owner)[name], memo) for name in deep if name in vars(owner)}
    vars(new).update({**vars(owner), **copies})
    yield new
    owner.__dict__ = vars(new)
