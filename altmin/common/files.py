"""Writing files such that other programs see them complete or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4


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
