"""Interrupts (Ctrl-C) that leave an object as it was before a call or as it is after it, never in between."""

import _signal  # type: ignore[import-not-found]  # `signal` takes ten times as long, to name handlers
from collections.abc import Callable
from functools import wraps
from signal import SIGINT
from threading import current_thread, main_thread
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])


class InterruptsDeferred:
    """Defer an interrupt to the end of the block. Threads other than the main one get none; nothing changes there.

    >>> import signal
    >>> written = []
    >>> try:
    ...     with InterruptsDeferred():
    ...         signal.raise_signal(signal.SIGINT)
    ...         written.append("all")
    ... except KeyboardInterrupt:
    ...     print(written)
    ['all']
    """

    def __enter__(self) -> None:
        self.arrived: tuple[Any, ...] | None = None
        usual = _signal.getsignal(SIGINT)
        self.usual = usual if callable(usual) and current_thread() is main_thread() else None
        if self.usual is not None:
            _signal.signal(SIGINT, self._note)

    def _note(self, *arrived: Any) -> None:
        self.arrived = arrived

    def __exit__(self, *_: object) -> None:
        if self.usual is not None:
            _signal.signal(SIGINT, self.usual)
            if self.arrived is not None:
                self.usual(*self.arrived)


def no_grad(function: F) -> F:
    """Decorate a function as `torch.no_grad` does, which by itself may leave gradients off if it is interrupted, and
    contexts of autocast open, so that torch would go on with old weights."""
    inside = torch.no_grad()(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        before, depth = torch.is_grad_enabled(), autocast_depth()
        try:
            return inside(*args, **kwargs)
        finally:
            torch.set_grad_enabled(before)
            while autocast_depth() > depth:
                torch.autocast_decrement_nesting()

    return call  # type: ignore[return-value]


def autocast_depth() -> int:
    """Return the number of contexts of autocast that are open."""
    return [torch.autocast_increment_nesting(), torch.autocast_decrement_nesting()][1]
