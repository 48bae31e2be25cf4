"""Files that appear whole or not at all."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

STALE_AFTER = 3600.0


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the name `path` only once it is complete and on the disc.

    Whatever goes wrong before that leaves an older `path` as it was. A process killed outright can
    leave its unfinished `*.tmp` behind, which nothing reads; a later writer clears it away.
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
    """Clear unfinished files for `path` that have not been written to for an hour: their writer is gone."""
    for left in path.parent.glob(f".{path.name}.*.tmp"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > STALE_AFTER:
                left.unlink()


def _umask() -> int:
    """The user's umask, which can only be read by setting it; mkstemp ignores it and makes private files."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
