"""An object that changes as a whole or not at all: the work is done on a copy, which then takes its place."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


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
