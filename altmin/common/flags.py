"""Settings of the algorithm that hold for a block of code, such as whether products are rounded: each thread has its
own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Scoped(Generic[T]):
    """A value that a thread has set for a block of code, elsewhere the one given at first.

    >>> scoped = Scoped(0)
    >>> with scoped.set(1):
    ...     scoped.value
    1
    >>> scoped.value
    0
    """

    def __init__(self, otherwise: T):
        self._local, self._otherwise = threading.local(), otherwise
        self._local.value = otherwise

    @property
    def value(self) -> T:
        return getattr(self._local, "value", self._otherwise)

    @contextmanager
    def set(self, value: T) -> Iterator[None]:
        """As given within this block, and then as before."""
        before, self._local.value = self.value, value
        try:
            yield
        finally:
            self._local.value = before


class Flag:
    """Off, unless the thread that asks has set it. Runs in several threads do not see each other's.

    `torch.compile` reads `on` as any other attribute, and compiles anew when it has changed.

    >>> flag = Flag()
    >>> with flag.set(True):
    ...     flag.on
    True
    >>> flag.on
    False
    """

    def __init__(self) -> None:
        self._local = threading.local()  # no subclass: of one, older versions of torch.compile read the class alone
        self._local.on = False

    @property
    def on(self) -> bool:
        return getattr(self._local, "on", False)

    @contextmanager
    def set(self, on: bool) -> Iterator[None]:
        """As given within this block, and then as before."""
        before, self._local.on = self.on, on
        try:
            yield
        finally:
            self._local.on = before
