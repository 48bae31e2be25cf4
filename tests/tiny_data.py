"""Small files in the formats of the data sets, for tests that need no download."""

import dataclasses
import gzip
import hashlib
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from altmin.data.idx_images import FASHION_MNIST, IdxImages


def idx(array: np.ndarray) -> bytes:
    """An array of unsigned bytes in the idx format, by its definition."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def eleven_images() -> dict[str, np.ndarray]:
    """8 training and 3 test images of 28 x 28, and their labels, by the names of MNIST's files."""
    random = np.random.default_rng(0)
    return {
        "train-images-idx3-ubyte": random.integers(0, 256, (8, 28, 28), np.uint8),
        "train-labels-idx1-ubyte": np.arange(8, dtype=np.uint8),
        "t10k-images-idx3-ubyte": random.integers(0, 256, (3, 28, 28), np.uint8),
        "t10k-labels-idx1-ubyte": np.arange(3, dtype=np.uint8),
    }


def tiny_fashion(root: Path, content: Mapping[str, np.ndarray]) -> IdxImages:
    """A data set in the form of Fashion-MNIST with 6 + 2 + 3 images, its files written in `root`."""
    folder = root / "fashion-mnist"
    folder.mkdir()
    for name, array in content.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    sums = {name: hashlib.sha256(idx(array)).hexdigest() for name, array in content.items()}
    return dataclasses.replace(FASHION_MNIST, splits={"train": 6, "validation": 2, "test": 3}, checksums=sums)
