"""The idx format of MNIST and Fashion-MNIST: a magic number, the sizes, then the bytes."""

import gzip
import zlib
from math import prod
from pathlib import Path

import numpy as np

from altmin.data.damage import Damaged, expect, md5

UNSIGNED_BYTE = 0x08


def read_idx(path: Path, dimensions: int, checksum: str | None = None) -> np.ndarray:
    """The array in a gzipped idx file of unsigned bytes.

    checksum: the md5 that the unpacked content must have. Raises Damaged if the file is unsound.
    """
    content = unpack(path)
    array = parse_idx(content, path, dimensions)
    if checksum is not None:
        expect(path, "md5", md5(content), checksum)
    return array


def unpack(path: Path) -> bytes:
    """The whole content of a gzip file. Raises Damaged if it cannot be unpacked."""
    try:
        with gzip.open(path) as file:
            return file.read()
    except EOFError:
        raise Damaged(path, "the gzip stream is cut short") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise Damaged(path, f"it is not a sound gzip file ({error})") from None


def parse_idx(content: bytes, path: Path, dimensions: int) -> np.ndarray:
    """The array of unsigned bytes in `content`, of `dimensions` dimensions.

    Raises Damaged, with `path` in its message, unless header and length fit.
    """
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
