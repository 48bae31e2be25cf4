"""Networks on which the code update is tried, with every kind of block, and losses with a wall."""

import math

import torch
from torch import Tensor, nn

F64 = torch.float64


class Residual(nn.Module):
    """A module of one's own: x + W relu(x) / sqrt(blocks)."""

    def __init__(self, width: int, blocks: int):
        super().__init__()
        self.layer, self.factor = nn.Linear(width, width), 1 / math.sqrt(blocks)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(torch.relu(x)) * self.factor


class Attention(nn.Module):
    """A module of one's own with torch's attention: x + attention(x)."""

    def __init__(self, width: int):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return x + self.out(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))


def mlp(activation=nn.ReLU, depth: int = 2, width: int = 6, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    hidden = [m for _ in range(depth - 1) for m in (activation(), nn.Linear(width, width))]
    return nn.Sequential(nn.Linear(4, width), *hidden, activation(), nn.Linear(width, 3)).double()


def lenet() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Unflatten(1, (1, 2, 2)), nn.ConstantPad2d(2, 0.0), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)),
    ).double()


def convolutional() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 2, padding=1), nn.BatchNorm2d(4), nn.ReLU()),
        *(nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(16, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 3)),
    ).double()


def residual(blocks: int = 4, width: int = 6) -> nn.Sequential:
    own = [Residual(width, blocks) for _ in range(blocks)]
    return nn.Sequential(nn.Linear(4, width), *own, nn.Linear(width, 3)).double()


def transformer() -> nn.Sequential:
    head = [nn.Flatten(), nn.Linear(8, 3)]
    return nn.Sequential(nn.Unflatten(1, (4, 1)), nn.Linear(1, 2), Attention(2), Attention(2), *head).double()


NETS = {
    "relu": lambda: mlp(),
    "tanh": lambda: mlp(nn.Tanh),
    "mixed": lambda: nn.Sequential(
        *(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.Softplus(), nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
    ).double(),
    "lenet": lenet,
    "convolutional": convolutional,
    "residual": residual,
    "transformer": transformer,
    "dropout": lambda: nn.Sequential(
        *(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 6), nn.ELU(), nn.Linear(6, 3))
    ).double(),
}


def net(name: str, seed: int = 0, gain: float = 1.0) -> nn.Sequential:
    """One of NETS with weights of its own, multiplied by gain."""
    torch.manual_seed(seed)
    model = NETS[name]()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(
                torch.randn_like(p) * gain / max(p[0].numel(), 1) ** 0.5 if p.ndim > 1 else 0.3 * torch.randn_like(p)
            )
    return model


def batch(seed: int = 1, samples: int = 7) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(samples, 4, generator=generator, dtype=F64), torch.randint(3, (samples,), generator=generator)


def steep(edge: float):
    """A linear loss with a wall: below the edge it rises by far more than a gradient there foretells."""
    return lambda o, y: (o + 1e3 * (edge - o).clamp_min(0).square()).mean()


def cliff(edge: float):
    """A linear loss that is no number below the edge."""
    return lambda o, y: torch.where(o > edge, o, torch.nan).mean()
