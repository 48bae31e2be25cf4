"""`Residual`, `View` and `Scale`."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Residual(nn.Module):
    """y = x + s W relu(x), with `scale` for s. The weights W start as N(0, 1 / width); there is no bias.

    >>> layer = Residual(2, scale=0.5)
    >>> with torch.no_grad():
    ...     _ = layer.weight.copy_(torch.tensor([[0.0, 2.0], [4.0, 0.0]]))
    >>> layer(torch.tensor([[1.0, -1.0]])).tolist()
    [[1.0, 1.0]]
    """

    def __init__(self, width: int, scale: float = 1.0):
        super().__init__()
        self.width, self.scale = width, scale
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale * F.linear(F.relu(x), self.weight)

    def extra_repr(self) -> str:
        return f"width={self.width}, scale={self.scale:.6g}"


class View(nn.Module):
    """The entries of x in other sizes, those of the whole batch; one of them may be -1.

    >>> View(-1, 6)(torch.zeros(4, 2, 3)).shape
    torch.Size([4, 6])
    """

    def __init__(self, *sizes: int):
        super().__init__()
        self.sizes = sizes

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(self.sizes)

    def extra_repr(self) -> str:
        return ", ".join(map(str, self.sizes))


class Scale(nn.Module):
    """Multiplication of x by a number.

    >>> Scale(0.5)(torch.ones(2))
    tensor([0.5000, 0.5000])
    """

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor

    def extra_repr(self) -> str:
        return repr(self.factor)
