"""Opening gzip files with a limit, since a small file can unpack to gigabytes."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from altmin.data.damage import Damaged


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


class Limited:
    """The first `limit` bytes of `file`, the unpacked content of `path`; reading more raises Damaged."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile, path: Path, limit: int):
        self.file, self.path, self.limit, self.done = file, path, limit, 0

    def read(self, size: int) -> bytes:
        block = self.file.read(size)
        self.done += len(block)
        if self.done > self.limit:
            raise Damaged(self.path, f"it unpacks to more than {self.limit:,} bytes")
        return block
