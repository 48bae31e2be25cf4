"""A model that is tried: its attributes, buffers and modes are afterwards as before."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def same_attributes(model: nn.Module) -> Iterator[list[tuple[str, Any]]]:
    """Restore the attributes of a model's modules at the end, modes, parameters and buffers among them. The list then
    has the names of those that had changed, and their values before.

    >>> layer = nn.Linear(2, 2)
    >>> with same_attributes(layer) as changed:
    ...     layer.in_features = 3
    >>> layer.in_features, changed
    (2, [('in_features', 2)])
    """
    held = [each for m in model.modules() for each in (vars(m), m._parameters, m._buffers, m._modules)]
    before: list[dict[str, Any]] = [dict(each) for each in held]
    changed: list[tuple[str, Any]] = []
    try:
        yield changed
    finally:
        for now, then in zip(held, before, strict=True):
            changed += [
                (name, then.get(name)) for name in then | now if then.get(name, held) is not now.get(name, held)
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
