"""The idx format of MNIST and Fashion-MNIST: a magic number, the sizes, then the bytes."""

import gzip
import zlib
from math import prod
from pathlib import Path

import numpy as np

from altmin.data.damage import Damaged, expect, md5

UNSIGNED_BYTE = 0x08


def read_idx(path: Path, dimensions: int, checksum: str | None = None) -> np.ndarray:
    """The array in a gzipped idx file; `checksum` is the md5 of the unpacked content."""
    content = unpack(path)
    array = parse_idx(content, path, dimensions)
    if checksum is not None:
        expect(path, "md5", md5(content), checksum)
    return array


def unpack(path: Path) -> bytes:
    """The content of a gzip file, whole, or an error that says what is wrong with it."""
    try:
        with gzip.open(path) as file:
            return file.read()
    except EOFError:
        raise Damaged(path, "the gzip stream is cut short") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise Damaged(path, f"it is not a sound gzip file ({error})") from None


def parse_idx(content: bytes, path: Path, dimensions: int) -> np.ndarray:
    """The array of unsigned bytes in `content`; `path` is only for the error."""
    start = 4 + 4 * dimensions
    magic = bytes([0, 0, UNSIGNED_BYTE, dimensions])
    if content[:4] != magic:
        found = content[:4].hex() or "nothing"
        raise Damaged(path, f"it starts with {found}, an idx file of {dimensions} dimensions with {magic.hex()}")
    if len(content) < start:
        raise Damaged(path, f"it ends within its header, after {len(content)} of {start} bytes")
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], ">u4"))
    if len(content) - start != prod(shape):
        sizes = " x ".join(map(str, shape))
        raise Damaged(path, f"it announces {sizes} bytes and holds {len(content) - start:,}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
