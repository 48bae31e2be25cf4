"""Layers whose weights have few bits."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STEPS = (1.0, 0.6239, 0.3672, 0.2101)
"""Half the spacing of 2, 4, 8 and 16 levels over the mean of |w|, for the least squared error with normal weights (Max
1960, "Quantizing for minimum distortion"); with 2 levels it is the least for any weights."""


class FewBits:
    """What `QuantisedLinear` and `QuantisedConv2d` have in common: the weights that they use are a q, with q one of the
    2^bits odd integers around 0 and a > 0 a number for each output, a fixed multiple of the mean of its |w|.

    w is the parameter that is trained. Backward, it gets the gradient of a q, unchanged: an estimate, since q has no
    derivative.
    """

    weight: Tensor
    bits: int

    def scale(self, w: Tensor) -> Tensor:
        """a of each output."""
        return w.detach().abs().flatten(1).mean(1).mul(STEPS[self.bits - 1]).clamp_min(torch.finfo(w.dtype).tiny)

    def integers(self, w: Tensor) -> Tensor:
        """q, the odd integers nearest to w / a, as floating numbers."""
        most = 2**self.bits - 1
        q = 2 * (w.detach() / _per_output(self.scale(w), w) / 2).floor() + 1
        return q.clamp(-most, most)

    def values(self, w: Tensor) -> Tensor:
        """a q."""
        return self.integers(w) * _per_output(self.scale(w), w)

    def _estimated(self) -> Tensor:
        """q, with the derivative of w / a. A product of q with integers is exact, unlike one with a q."""
        relative = self.weight / _per_output(self.scale(self.weight), self.weight)
        return self.integers(self.weight) + (relative - relative.detach())

    def _demand_bits(self, bits: int) -> None:
        if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= len(STEPS):
            raise ValueError(f"weights of {type(self).__name__} have 1 to {len(STEPS)} bits, given {bits!r}")
        self.bits = bits


class QuantisedLinear(FewBits, nn.Linear):
    """`nn.Linear` with weights of 1 to 4 bits: with 1, a sign times a number for each output. See `FewBits`.

    >>> layer = QuantisedLinear(2, 1, bias=False)
    >>> with torch.no_grad():
    ...     _ = layer.weight.copy_(torch.tensor([[3.0, -1.0]]))
    >>> layer(torch.tensor([[1.0, 1.0], [1.0, -1.0]])).tolist()
    [[0.0], [4.0]]
    """

    def __init__(self, inputs: int, outputs: int, bias: bool = True, bits: int = 1):
        super().__init__(inputs, outputs, bias)
        self._demand_bits(bits)

    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(x, self._estimated()) * self.scale(self.weight)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, bits={self.bits}"


class QuantisedConv2d(FewBits, nn.Conv2d):
    """`nn.Conv2d` with weights of 1 to 4 bits; padding is with zeros. See `FewBits`.

    >>> QuantisedConv2d(3, 8, 3, padding=1, bits=2)(torch.zeros(2, 3, 5, 5)).shape
    torch.Size([2, 8, 5, 5])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
        bias: bool = True,
        bits: int = 1,
    ):
        super().__init__(inputs, outputs, kernel, stride, padding, bias=bias)
        self._demand_bits(bits)

    def forward(self, x: Tensor) -> Tensor:
        y = self._conv_forward(x, self._estimated(), None) * self.scale(self.weight).view(-1, 1, 1)
        return y if self.bias is None else y + self.bias.view(-1, 1, 1)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, bits={self.bits}"


def _per_output(a: Tensor, w: Tensor) -> Tensor:
    """One number for each output in the form of the weights w."""
    return a.view(-1, *[1] * (w.ndim - 1))
