"""Layers whose weights have few bits."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STEPS = (1.0, 0.6239, 0.3672, 0.2101)
"""Half the spacing of 2, 4, 8 and 16 levels over the mean of |w|, for the least squared error with normal weights (Max
1960, "Quantizing for minimum distortion"); with 2 levels it is the least for any weights."""


class FewBits(nn.Module):
    """Base class of `QuantisedLinear` and `QuantisedConv2d`. The weights that they use are a q, with q one of the
    2^bits odd integers around 0 and a > 0 a number for each output, a fixed multiple of the mean of its |w|.

    w is the parameter that is trained. Backward, it gets the gradient of a q, unchanged: an estimate, since q has no
    derivative.
    """

    weight: Tensor
    bias: Any

    def __init__(self, *sizes: int, bits: int = 1, **options: Any):
        super().__init__(*sizes, **options)
        if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= len(STEPS):
            raise ValueError(f"weights of {type(self).__name__} have 1 to {len(STEPS)} bits, given {bits!r}")
        if getattr(self, "padding_mode", "zeros") != "zeros":
            raise ValueError(f"{type(self).__name__} pads with zeros alone, given padding_mode={self.padding_mode!r}")
        self.bits = bits

    def scale(self, w: Tensor) -> Tensor:
        """Return a, in the form of the weights w."""
        mean = w.detach().abs().flatten(1).mean(1).view(-1, *[1] * (w.ndim - 1))
        return mean.mul(STEPS[self.bits - 1]).clamp_min(torch.finfo(w.dtype).tiny)

    def integers(self, w: Tensor) -> Tensor:
        """Return q, the odd integers nearest to w / a, as floating numbers."""
        most = 2**self.bits - 1
        return (2 * (w.detach() / self.scale(w) / 2).floor() + 1).clamp(-most, most)

    def values(self, w: Tensor) -> Tensor:
        """Return a q."""
        return self.integers(w) * self.scale(w)

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return the product with these weights, without a bias."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Return a (q x) + b, with the derivative of w for a q. A product of q with integers is exact, unlike one with
        a q."""
        a = self.scale(self.weight)
        relative = self.weight / a
        y = self.product(x, self.integers(self.weight) + (relative - relative.detach())) * a[:, 0]
        return y if self.bias is None else y + self.bias.view(-1, *[1] * (a.ndim - 2))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, bits={self.bits}"


class QuantisedLinear(FewBits, nn.Linear):
    """`nn.Linear` with weights of 1 to 4 bits: with 1, a sign times a number for each output. See `FewBits`.

    >>> layer = QuantisedLinear(2, 1, bias=False)
    >>> with torch.no_grad():
    ...     _ = layer.weight.copy_(torch.tensor([[3.0, -1.0]]))
    >>> layer(torch.tensor([[1.0, 1.0], [1.0, -1.0]])).tolist()
    [[0.0], [4.0]]
    """

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.linear(x, weight)


class QuantisedConv2d(FewBits, nn.Conv2d):
    """`nn.Conv2d` with weights of 1 to 4 bits; padding is with zeros. See `FewBits`.

    >>> QuantisedConv2d(3, 8, 3, padding=1, bits=2)(torch.zeros(2, 3, 5, 5)).shape
    torch.Size([2, 8, 5, 5])
    """

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        return self._conv_forward(x, weight, None)
