"""The error for damaged data files, and the checksums that detect them."""

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
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


def expect(path: Path, algorithm: str, found: str, expected: str) -> None:
    """Raise Damaged unless `found`, the checksum of the content of `path`, is the one expected."""
    if found != expected:
        raise Damaged(path, f"its content has {algorithm} {found}, expected {expected}")


def sha256(content: bytes) -> str:
    """The sha256 of `content`, as hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


@contextmanager
def unpacking(path: Path) -> Iterator[gzip.GzipFile]:
    """The unpacked content of a gzip file; only what `read(size)` returns is in memory.

    In the block, an invalid gzip stream raises Damaged. Its checksum is verified at its end.
    """
    try:
        with gzip.open(path) as file:
            yield file
    except EOFError:
        raise Damaged(path, "the gzip stream is cut short") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise Damaged(path, f"it is not a sound gzip file ({error})") from None


def verified(path: Path, size: int, checksum: str, algorithm: str = "sha256", packed: bool = False) -> bytes:
    """The content of a file, unpacked if it is a gzip file (`packed`). Raises Damaged unless it has this number of
    bytes and this checksum; no more is read or unpacked than that, and one byte."""
    with unpacking(path) if packed else path.open("rb") as file:
        content = file.read(size + 1)
    if len(content) != size:
        found = f"{len(content):,}{' or more' if len(content) > size else ''}"
        raise Damaged(path, f"it has {found} bytes, expected {size:,}")
    expect(path, algorithm, hashlib.new(algorithm, content, usedforsecurity=False).hexdigest(), checksum)
    return content


class Hashed:
    """A binary file that takes the length and the sha256 of what is written to it. Closing it leaves the file open."""

    closed = False

    def __init__(self, file: BinaryIO):
        self.file, self.size, self.sha256 = file, 0, hashlib.sha256()

    def write(self, content: bytes) -> int:
        self.sha256.update(content)
        self.size += len(content)
        return self.file.write(content)

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.closed = True
