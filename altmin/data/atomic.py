"""Writing a file so that other programs see it complete or not at all. Whatever altmin writes is written here, but
downloads, which go on where they broke off."""

import io
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, cast
from uuid import uuid4

try:
    from fcntl import LOCK_EX, flock
except ImportError:  # there is none outside Unix
    flock = None  # type: ignore[assignment]

STALE_AFTER = 3600.0
LONG = 200
"""Bytes of a name up to which a temporary file is named after it; file systems allow 255 in all."""


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a binary file to write to; at the end of the block it is flushed to disk and renamed to `path`.

    The folder is created if necessary. A symbolic link is followed: the file that it leads to is replaced, and keeps
    its permissions. A device, a named pipe and standard output are never replaced: they get the content at the end of
    the block. If the block raises, an existing `path` is unchanged and the exception propagates; an operating system
    error names `path`. A killed process can leave an unfinished `*.tmp` in the folder; nothing reads it, and a later
    call for the same `path` deletes it after an hour.
    """
    if is_stream(path):
        held = io.BytesIO()
        yield held
        _send(path, held.getvalue())
        return
    with naming(path):
        target = followed(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        discard(path, STALE_AFTER)
        name, temporary = _begin(path, target)
    try:
        with io.BufferedWriter(temporary) as file:
            yield cast(BinaryIO, file)
            with naming(path):
                file.flush()
                os.fsync(file.fileno())
        with naming(path):
            os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            name.unlink()
        raise


def append(path: Path, content: bytes) -> None:
    """Add `content` to the end of a file, in lines of its own, whole or not at all. Processes that append to one file
    wait for each other (`locked`), so that none loses what another has written."""
    with naming(path), locked(path):
        before = path.read_bytes()
        with replacing(path) as file:
            file.write(before + (b"\n" if before and not before.endswith(b"\n") else b"") + content)


def check(path: Path) -> None:
    """Raises OSError, which names `path`, if `replacing` could not write it now. Nothing is left of the attempt."""
    if is_stream(path):
        if _standard(path) is None:
            _demand_permission(path)
        return
    with naming(path):
        name, temporary = _begin(path, followed(path))
        temporary.close()
        name.unlink()


def followed(path: Path) -> Path:
    """The file that a symbolic link leads to; another path is given back as it is. OSError for links in a circle."""
    with suppress(FileNotFoundError):
        path.stat()
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def is_stream(path: Path) -> bool:
    """Whether `path` is written to as it is, and never replaced: a device such as /dev/null, a named pipe, and standard
    output or standard error, which may be a file."""
    with suppress(OSError):
        mode = path.stat().st_mode
        return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) or _standard(path) is not None
    return False


def _standard(path: Path) -> int | None:
    """The descriptor of standard output or standard error, if `path` is where it goes. A process that was started
    without them may have other files under their numbers."""
    streams = ((1, sys.__stdout__), (2, sys.__stderr__))
    return next((number for number, stream in streams if stream is not None and _same(path, number)), None)


def _same(path: Path, descriptor: int) -> bool:
    """Whether a descriptor is open on the file at `path`."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def _send(path: Path, content: bytes) -> None:
    """Write to a stream. To open standard output again, if it is a file, would begin at its start."""
    number = _standard(path)
    with naming(path):
        for stream in (sys.__stdout__, sys.__stderr__):
            if number is not None and stream is not None:
                stream.flush()
        with open(path if number is None else os.dup(number), "wb") as file:
            file.write(content)


def _begin(path: Path, target: Path) -> tuple[Path, "_Target"]:
    """The temporary file for `target`, by its name and open, with the permissions of what it is to replace."""
    mode = None
    with suppress(FileNotFoundError):
        mode = target.stat().st_mode
    if mode is not None and stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{path} is a folder; name a file in it")
    if mode is not None and not stat.S_ISREG(mode):
        raise OSError(f"{path} is a socket or a whole disc; name a file")
    if mode is not None:
        _demand_permission(path)
    name = target.with_name(f".{_stem(target)}.{uuid4().hex}.tmp")
    temporary = _Target(name, path)
    if mode is not None:
        with suppress(OSError):  # a file system may have no permissions
            name.chmod(stat.S_IMODE(mode))
    return name, temporary


def _demand_permission(path: Path) -> None:
    if not os.access(path, os.W_OK):
        raise PermissionError(f"{path} may not be written to")


def _stem(target: Path) -> str:
    name = os.fsencode(target.name)
    return target.name if len(name) <= LONG else sha256(name).hexdigest()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock on a file, which is created if necessary: one process or thread at a time is in such a block.
    Outside Unix, and on discs without locks, none waits.

    The file may be replaced in the block; a process that was waiting for it then locks its successor instead.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("ab") as file:
            with suppress(OSError):  # a disc may have no locks
                if flock is not None:
                    flock(file, LOCK_EX)
            if _same(path, file.fileno()):
                yield
                return


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
    target = followed(path)
    own = re.compile(rf"\.{re.escape(_stem(target))}\.[0-9a-f]{{32}}\.tmp")
    for left in target.parent.iterdir() if target.parent.is_dir() else ():
        with suppress(OSError):
            if own.fullmatch(left.name) and time.time() - left.stat().st_mtime > age:
                left.unlink()
