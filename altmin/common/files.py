"""Writing files such that other programs see them complete or not at all, and files that unpack to too much."""

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

LARGE, TIMES = 1 << 28, 100
"""Bytes that a small packed file may hold, and the multiple of its size that a larger one may hold."""


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """Yield a binary file; at the end of the block it is on disk and takes the place of `path`.

    If the block raises, `path` is as before. Folders are created, a symbolic link is followed, and a device or a pipe
    is written to, never replaced.
    """
    path = Path(path)
    if is_stream(path):
        with path.open("ab") as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def is_stream(path: Path) -> bool:
    """Return whether `path` is a device such as /dev/stdout or a pipe."""
    return path.is_relative_to("/dev") or (path.exists() and not path.is_file() and not path.is_dir())


def check_unpacked(path: str | Path) -> None:
    """Raise ValueError for a gzip file that holds much more than its size lets expect, before it is in memory."""
    most = max(LARGE, TIMES * os.path.getsize(path))
    with gzip.open(path) as file:
        while file.read(1 << 20):
            if file.tell() > most:
                raise ValueError(
                    f"{path} holds more than {most:,} bytes, too much for its size; unpack it if it should"
                )
