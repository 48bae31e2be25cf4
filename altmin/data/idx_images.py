"""MNIST, which is part of the package, and Fashion-MNIST: 28 x 28 grey images in gzipped idx files."""

from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np

from altmin.data.base import Images, verified


@dataclass(frozen=True, kw_only=True)
class IdxImages(Images):
    """Images and labels of training and validation, then those of the test, each a file of a header and bytes.

    checksums: the sha256 of the unpacked content of each file. folder: in the data folder. permuted: whether the pixels
    come in another order, the same one in every image.
    """

    folder: str
    permuted: bool = False

    def files(self, root: Path) -> list[Path]:
        """Return those in the data folder, or the embedded ones where these are missing."""
        there = [root / self.folder / f"{name}.gz" for name in self.checksums]
        return [path if path.is_file() or not self.embedded else self.embedded / path.name for path in there]

    def check(self, path: Path) -> None:
        self._read(path)

    def _samples(self, test: bool, root: Path) -> tuple[np.ndarray, np.ndarray]:
        images, labels = (self._read(path) for path in self.files(root)[2 * test :][:2])
        if self.permuted:
            images = images[:, np.random.RandomState(0).permutation(images.shape[1])]
        return images[:, None], labels[:, 0]

    def _read(self, path: Path) -> np.ndarray:
        """Return the bytes of each image (n, pixels), or its label (n, 1)."""
        size, header = (prod(self.sample_shape), 16) if "idx3" in path.name else (1, 8)
        return np.frombuffer(verified(path, self.checksums[path.stem]), np.uint8, offset=header).reshape(-1, size)


MNIST = IdxImages(
    name="mnist",
    sample_shape=(1, 28, 28),
    classes=10,
    splits={"train": 50_000, "validation": 10_000, "test": 10_000},
    licence="CC BY-SA 3.0, LeCun, Cortes, Burges",
    url="https://yann.lecun.com/exdb/mnist/",
    folder="mnist",
    embedded=Path(__file__).parent / "files" / "mnist",
    checksums={
        "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
)
MNIST_SEQUENTIAL = replace(MNIST, name="mnist-sequential", sample_shape=(784, 1))
"""Each pixel, row by row, is a step with one feature."""
MNIST_PERMUTED = replace(MNIST_SEQUENTIAL, name="mnist-permuted", permuted=True)
MNIST_ROWS = replace(MNIST, name="mnist-rows", sample_shape=(28, 28))
"""Each row is a step with 28 features."""
FASHION_MNIST = replace(
    MNIST,
    name="fashion-mnist",
    licence="MIT, Zalando SE",
    url="https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    download_size=30_878_645,
    folder="fashion-mnist",
    embedded=None,
    checksums={
        "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
)
