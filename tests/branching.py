"""Modules whose graph branches, as users write them, with the shape of an input each."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PreNorm(nn.Module):
    """x + W2 gelu(W1 norm(x))."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.expand, self.project = nn.LayerNorm(4), nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.project(F.gelu(self.expand(self.norm(x))))


class Basic(nn.Module):
    """A residual block with a shortcut, written with in-place operations."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(2, 3, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(3)
        self.conv2, self.norm2, self.relu = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential(nn.Conv2d(2, 3, 1, stride=2), nn.BatchNorm2d(3))

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        out += self.shortcut(x)
        return torch.tanh(out)


class SwiGLU(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(4, 6), nn.Linear(4, 6, bias=False), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x + self.down(F.silu(self.gate(x)) * self.up(x)) / 3


class Attention(nn.Module):
    """Sizes, chunks and products that have no closed form between layers that have."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(4), nn.Linear(4, 12), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        n, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, t, 3, d).unbind(2)
        return x + self.out((q @ k.mT / d**0.5).softmax(-1) @ v)


class Excite(nn.Module):
    """A squeeze-and-excitation block: channels are scaled by what their means say."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(4, 2, 1), nn.Conv2d(2, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        s = torch.sigmoid(self.up(torch.tanh(self.down(F.adaptive_avg_pool2d(x, 1)))))
        return x * s


class Dense(nn.Module):
    """A dense block: each layer sees all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3 + 2 * i, 2) for i in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.layers:
            features.append(torch.tanh(layer(torch.cat(features, 1))))
        return torch.cat(features, dim=1)


class Split(nn.Module):
    """A part without closed form that gives two values, of which one goes through a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 8), nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.layer(x).chunk(2, -1)
        return x + self.norm(a) * b.cumsum(-1)


class Tied(nn.Module):
    """A layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(torch.tanh(self.layer(x)))


MODULES = [
    (Tied, (3, 4)),
    (PreNorm, (3, 4)),
    (PreNorm, (3, 2, 4)),
    (Basic, (3, 2, 6, 6)),
    (SwiGLU, (3, 4)),
    (Attention, (3, 5, 4)),
    (Excite, (2, 4, 3, 3)),
    (Dense, (4, 3)),
    (Split, (3, 4)),
]
