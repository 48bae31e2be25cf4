"""Images as sequences: each pixel, row by row, is a step with one feature."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from altmin.data.idx_images import IdxImages
from altmin.data.mnist import MNIST


@dataclass(frozen=True, kw_only=True)
class PixelSequences(IdxImages):
    """The images of another data set as sequences (784, 1), row by row; files and checksums are those of `images`."""

    images: IdxImages

    def _load(self, split: str, root: Path) -> tuple[Tensor, Tensor]:
        x, y = super()._load(split, root)
        return x.flatten(1).unsqueeze(-1), y

    def _find(self, root: Path, name: str) -> Path:
        return self.images._find(root, name)


MNIST_SEQUENTIAL = PixelSequences(
    name="mnist-sequential",
    sample_shape=(784, 1),
    images=MNIST,
    **{field: getattr(MNIST, field) for field in ("classes", "splits", "licence", "url", "download_size")},
    embedded=MNIST.embedded,
    sha256=MNIST.sha256,
)
