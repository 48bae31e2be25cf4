"""Writing a file so that other programs see it complete or not at all."""

import io
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any, BinaryIO, cast

STALE_AFTER = 3600.0


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a binary file to write to; at the end of the block it is flushed to disk and renamed to `path`.

    The folder is created if necessary. If the block raises, an existing `path` is unchanged and the exception
    propagates; an operating system error names `path`. A killed process can leave an unfinished `*.tmp` in the folder;
    nothing reads it, and a later call for the same `path` deletes it after an hour.
    """
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with io.BufferedWriter(_Target(handle, path)) as file:
            yield cast(BinaryIO, file)
            with naming(path):
                file.flush()
                os.fsync(file.fileno())
        with naming(path):
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let operating system errors raised in the block, such as a full disk, name `path`."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


class _Target(io.FileIO):
    """The temporary file; a write error names the final file."""

    def __init__(self, handle: int, path: Path):
        super().__init__(handle, "wb")
        self.path = path

    def write(self, data: Any) -> int:
        with naming(self.path):
            return super().write(data)


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
    """Delete all temporary files for `path`, of any age. Only for its owner, if no other process writes to it."""
    for left in path.parent.glob(f".{escape(path.name)}.*.tmp"):
        with suppress(OSError):
            left.unlink()
