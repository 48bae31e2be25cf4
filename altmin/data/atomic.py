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
    """Give a binary file to write to; it is renamed to `path` at the end of the block, once it is on the disc.

    The folder is made if need be. If the block raises, an older `path` stays as it was and the exception goes on; an
    error of the disc names `path`. A process that is killed can leave its unfinished `*.tmp` in the folder; nothing
    reads it, and a later call for the same `path` deletes it after an hour.
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
    """Make an error of the operating system in the block, such as a full disc, one about `path`."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


class _Target(io.FileIO):
    """The unfinished file; an error of writing names the file that it is to become."""

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
    """Delete all unfinished files for `path`, however young: for its owner, when no other process writes to it."""
    for left in path.parent.glob(f".{escape(path.name)}.*.tmp"):
        with suppress(OSError):
            left.unlink()
