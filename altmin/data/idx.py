"""The idx format of MNIST and Fashion-MNIST: a magic number, the sizes, then the bytes."""

from math import prod
from pathlib import Path

import numpy as np

from altmin.data.damage import Damaged, expect, sha256
from altmin.data.gunzip import unpacking

UNSIGNED_BYTE = 0x08


def read_idx(path: Path, dimensions: int, largest: int, checksum: str | None = None) -> np.ndarray:
    """The array in a gzipped idx file of unsigned bytes.

    largest: the most values it may have; no more is unpacked than that and than its header announces. checksum: the
    sha256 that the unpacked content must have. Raises Damaged if the file is unsound.
    """
    with unpacking(path) as file:
        header = file.read(4 + 4 * dimensions)
        shape = _shape(header, path, dimensions)
        if prod(shape) > largest:
            raise Damaged(path, f"it announces {_product(shape)} bytes, expected at most {largest:,}")
        content = header + file.read(prod(shape) + 1)  # one byte more than there should be
    array = parse_idx(content, path, dimensions)
    if checksum is not None:
        expect(path, "sha256", sha256(content), checksum)
    return array


def parse_idx(content: bytes, path: Path, dimensions: int) -> np.ndarray:
    """The array of unsigned bytes in `content`, of `dimensions` dimensions.

    Raises Damaged, with `path` in its message, unless header and length fit.
    """
    start = 4 + 4 * dimensions
    shape = _shape(content[:start], path, dimensions)
    size = len(content) - start
    if size != prod(shape):
        raise Damaged(path, f"it announces {_product(shape)} bytes and holds {'more' if size > prod(shape) else size}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _shape(header: bytes, path: Path, dimensions: int) -> tuple[int, ...]:
    """The sizes that a header announces. Raises Damaged if it is another header or not a whole one."""
    magic = bytes([0, 0, UNSIGNED_BYTE, dimensions])
    if header[:4] != magic:
        found = header[:4].hex() or "nothing"
        raise Damaged(path, f"it starts with {found}, an idx file of {dimensions} dimensions with {magic.hex()}")
    if len(header) < 4 + 4 * dimensions:
        raise Damaged(path, f"it ends within its header, after {len(header)} of {4 + 4 * dimensions} bytes")
    return tuple(int(size) for size in np.frombuffer(header[4:], ">u4"))


def _product(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
