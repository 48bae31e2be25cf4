"""Switches of the algorithm, such as whether products are rounded: each thread has its own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Flag(threading.local):
    """Off, unless the thread that asks has set it. Runs in several threads do not see each other's.

    `torch.compile` reads `on` as any other attribute, and compiles anew when it has changed.

    >>> flag = Flag()
    >>> with flag.set(True):
    ...     flag.on
    True
    >>> flag.on
    False
    """

    on = False

    @contextmanager
    def set(self, on: bool) -> Iterator[None]:
        """As given within this block, and then as before."""
        before, self.on = self.on, on
        try:
            yield
        finally:
            self.on = before
