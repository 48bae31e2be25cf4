"""Random augmentations that do not change the class, applied to each mini-batch on its device."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor


@runtime_checkable
class Drawn(Protocol):
    """An augmentation in two parts: numbers are drawn first, so that a recorded step can apply them."""

    def draw(self, samples: int, generator: torch.Generator) -> Tensor:
        """Draw a number for each sample, int64 (samples,), on the generator's device."""

    def apply(self, x: Tensor, y: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Return samples and targets (samples, ...) augmented by these numbers, on the device of x, of the same shapes
        and types. Reads no number back to the processor and draws none."""


@dataclass(frozen=True)
class CropFlip:
    """A random crop of the same size of each image, mirrored with probability 1/2.

    An image is padded by `pad` zeros, the mean of standardised data; the corner of its crop is uniform among
    (2 pad + 1)^2. The number drawn is twice the index of the corner, plus one for a mirrored image.
    """

    pad: int = 4

    def draw(self, samples: int, generator: torch.Generator) -> Tensor:
        kinds = 2 * (2 * self.pad + 1) ** 2
        return torch.randint(kinds, (samples,), generator=generator, device=generator.device)

    def apply(self, x: Tensor, y: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Crop and mirror. ValueError unless x is a batch of images, (samples, channels, height, width)."""
        if x.ndim != 4:
            raise ValueError(
                f"crops are made of images, a batch of shape (samples, channels, height, width), given {tuple(x.shape)}"
            )
        n, channels, height, width = x.shape
        pad, drawn = self.pad, drawn.to(x.device)
        corner = drawn.div(2, rounding_mode="floor")
        top, left = corner.div(2 * pad + 1, rounding_mode="floor"), corner % (2 * pad + 1)
        column = torch.arange(width, device=x.device)
        across = torch.where((drawn % 2 == 1)[:, None], column.flip(0), column)
        down, across = top[:, None] + torch.arange(height, device=x.device), left[:, None] + across
        stride = width + 2 * pad
        places = down[:, :, None] * stride + across[:, None, :]
        padded = F.pad(x, [pad] * 4).flatten(2)
        return padded.gather(2, places.view(n, 1, -1).expand(-1, channels, -1)).view(x.shape), y


class RandomWindows:
    """Replaces each training window by one at a uniformly random position of the text.

    x, y: all training windows (n, context) and for each token the one after it, as `altmin.data.windows` cuts them.
    Their text is T = n context + 1 tokens long; a window begins at 0, ..., T - context - 1. An epoch
    has as many windows as before, and sees some tokens twice and some not at all. The text stays on the device of x.

    Raises ValueError unless the windows are consecutive.
    """

    def __init__(self, x: Tensor, y: Tensor):
        if x.ndim != 2 or x.shape != y.shape or x.dtype != torch.int64 or y.dtype != torch.int64:
            raise ValueError(
                "random windows are made of windows of tokens and the tokens that follow, both int64 of shape "
                f"(windows, context), given {x.dtype} of {tuple(x.shape)} and {y.dtype} of {tuple(y.shape)}"
            )
        self.text, self.context = torch.cat([x.flatten(), y[-1, -1:]]), x.shape[1]
        if not torch.equal(self.text[1:], y.flatten()):
            raise ValueError(
                "random windows are made of a text: each window must begin where the last one ends, and each target be "
                "the next token, as altmin.data.windows(tokens, context) cuts them"
            )

    def __repr__(self) -> str:
        return f"RandomWindows(context={self.context})"

    def draw(self, samples: int, generator: torch.Generator) -> Tensor:
        """Draw the position at which each window begins."""
        beginnings = len(self.text) - self.context
        return torch.randint(beginnings, (samples,), generator=generator, device=generator.device)

    def apply(self, x: Tensor, y: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Return the windows that begin there, and for each of their tokens the next one, on the device of x."""
        text = self.text
        windows = text[drawn.to(text.device)[:, None] + torch.arange(self.context + 1, device=text.device)].to(x.device)
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


AUGMENTATIONS: dict[str, Callable[[Tensor, Tensor], Drawn]] = {
    "crop-flip": lambda x, y: CropFlip(),
    "random-windows": RandomWindows,
}
"""By the names that `fit` and the command line know: what each is for training samples x and their targets y."""
