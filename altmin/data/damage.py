"""The error for damaged data files, and the checksums that detect them."""

import hashlib
from pathlib import Path
from typing import BinaryIO

BLOCK = 1 << 20


class Damaged(ValueError):
    """An invalid data file. The message says which one, what is wrong with it, and how to fix it."""

    def __init__(self, path: Path, what: str, mend: str = "replace it with an undamaged copy"):
        super().__init__(f"{path} is damaged: {what}; {mend}")
        self.path, self.what = path, what


def digest(path: Path, algorithm: str) -> str:
    """The checksum of a file as hexadecimal digits. The file is read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


class Hashed:
    """A binary file that takes the length and the sha256 of what is read from it or written to it. Closing it leaves
    the file open."""

    closed = False

    def __init__(self, file: BinaryIO):
        self.file, self.size, self.sha256 = file, 0, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        return self._seen(self.file.read(size))

    def write(self, content: bytes) -> int:
        return self.file.write(self._seen(content))

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.closed = True

    def _seen(self, content: bytes) -> bytes:
        self.sha256.update(content)
        self.size += len(content)
        return content


def expect(path: Path, algorithm: str, found: str, expected: str) -> None:
    """Raise Damaged unless `found`, the checksum of the content of `path`, is the one expected."""
    if found != expected:
        raise Damaged(path, f"its content has {algorithm} {found}, expected {expected}")


def sha256(content: bytes) -> str:
    """The sha256 of `content`, as hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def md5(content: bytes) -> str:
    """The md5 of `content`, for files published with no other checksum. It detects accidental damage only."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
