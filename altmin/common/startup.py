"""Ctrl-C while the `altmin` command imports: torch takes a second, in which nothing can handle it.

This is the first module that the package imports, and it imports next to nothing.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def is_command() -> bool:
    """Whether this process is the `altmin` command, or `python -m altmin`, or `python -m altmin.cli`."""
    if sys.argv[:1] == ["-m"]:  # the module is still being looked for
        return not {"altmin", "altmin.cli"}.isdisjoint(sys.orig_argv)
    return bool(sys.argv) and os.path.basename(sys.argv[0]) in ("altmin", "altmin.exe", "altmin-script.py")


def guard() -> None:
    """From now on Ctrl-C ends the process with a line and exit code 130, unless something else is set to happen."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)


@contextmanager
def lifted() -> Iterator[None]:
    """In the block, Ctrl-C raises KeyboardInterrupt even if `guard` was called; after it, things are as before."""
    guarded = signal.getsignal(signal.SIGINT) is _stop
    if guarded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if guarded:
            signal.signal(signal.SIGINT, _stop)


@contextmanager
def importing() -> Iterator[None]:
    """In the block, Ctrl-C ends the `altmin` command as `guard` has it, though that is lifted; after it, things are as
    before."""
    usual = signal.getsignal(signal.SIGINT)
    if is_command():
        guard()
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is not usual:
            signal.signal(signal.SIGINT, usual)


def _stop(*_: object) -> None:
    """An exception could be lost in the middle of an import; and nothing has begun that would have to be ended."""
    if os.environ.get("RANK", "0") == "0":  # of processes that torchrun has started one says so
        os.write(2, b"altmin: stopped\n")
    os._exit(130)


if is_command():
    guard()
