"""Writing a file so that other programs see it complete or not at all."""

import io
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any, BinaryIO, cast
from uuid import uuid4

STALE_AFTER = 3600.0


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a binary file to write to; at the end of the block it is flushed to disk and renamed to `path`.

    The folder is created if necessary. If the block raises, an existing `path` is unchanged and the exception
    propagates; an operating system error names `path`. A killed process can leave an unfinished `*.tmp` in the folder;
    nothing reads it, and a later call for the same `path` deletes it after an hour.
    """
    name = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        discard(path, STALE_AFTER)
        target = _Target(name, path)
    try:
        with io.BufferedWriter(target) as file:
            yield cast(BinaryIO, file)
            with naming(path):
                file.flush()
                os.fsync(file.fileno())
        with naming(path):
            os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            name.unlink()
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

    def __init__(self, name: Path, path: Path):
        super().__init__(name, "xb")
        self.path = path

    def write(self, data: Any) -> int:
        with naming(self.path):
            return super().write(data)


def discard(path: Path, age: float = -1.0) -> None:
    """Delete temporary files for `path` that have not been written to for more than `age` seconds; by default all,
    which is for its owner, if no other process writes to it."""
    for left in path.parent.glob(f".{escape(path.name)}.*.tmp"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > age:
                left.unlink()
