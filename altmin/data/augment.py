"""Random changes of images that leave their classes as they are, made for each mini-batch where it lies."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Augmentation = Callable[[Tensor, torch.Generator], Tensor]
"""(samples, generator of the CPU) -> samples of the same shape, which may not be the same memory."""


def crop_flip(x: Tensor, generator: torch.Generator, pad: int = 4) -> Tensor:
    """Of each image in x (n, channels, height, width) a random crop of the same size, every other one mirrored.

    An image gets a border of `pad` zeros, the mean of standardised data; the corner of its crop is one of
    (2 pad + 1)^2, all equally likely, and with probability 1/2 left and right are swapped. Random numbers are the
    generator's, of the CPU, so that every device sees the same crops; the images stay on theirs.

    Raises ValueError unless x is a batch of images.
    """
    if x.ndim != 4:
        raise ValueError(
            f"crops are made of images, a batch of shape (samples, channels, height, width), given {tuple(x.shape)}"
        )
    n, channels, height, width = x.shape
    drawn = torch.randint(2 * (2 * pad + 1) ** 2, (n,), generator=generator)
    corner = drawn.div(2, rounding_mode="floor")
    top, left = corner.div(2 * pad + 1, rounding_mode="floor"), corner % (2 * pad + 1)
    across = torch.where((drawn % 2 == 1)[:, None], torch.arange(width).flip(0), torch.arange(width))
    down, across = top[:, None] + torch.arange(height), left[:, None] + across
    stride = width + 2 * pad
    places = (down[:, :, None] * stride + across[:, None, :]).to(x.device)
    padded = F.pad(x, [pad] * 4).flatten(2)
    return padded.gather(2, places.view(n, 1, -1).expand(-1, channels, -1)).view(x.shape)


AUGMENTATIONS: dict[str, Augmentation] = {"crop-flip": crop_flip}
"""By the names that `fit` and the command line know."""
