"""Writing a file so that other programs see it complete or not at all."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import BinaryIO

STALE_AFTER = 3600.0


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Give a binary file to write to; it is renamed to `path` at the end of the block, once it is on the disc.

    The folder is made if need be. If the block raises, an older `path` stays as it was and the exception goes on. A
    process that is killed can leave its unfinished `*.tmp` in the folder; nothing reads it, and a later call for the
    same `path` deletes it after an hour.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _sweep(path: Path) -> None:
    """Delete unfinished files for `path` that have not been written to for an hour."""
    for left in path.parent.glob(f".{path.name}.*.tmp"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > STALE_AFTER:
                left.unlink()


def _umask() -> int:
    """The process's umask. It can only be read by setting it; mkstemp ignores it and makes private files."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def discard(path: Path) -> None:
    """Delete all unfinished files for `path`, however young: for its owner, when no other process writes to it."""
    for left in path.parent.glob(f".{escape(path.name)}.*.tmp"):
        with suppress(OSError):
            left.unlink()
