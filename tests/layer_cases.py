"""Trainers whose blocks are spread over ranks, and what one process makes of the same batches."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import altmin
from altmin.methods import create
from altmin.runners.ranks import bounds

F64 = torch.float64
SIZES = (9, 5, 8)


def straight() -> nn.Module:
    return altmin.models.mlp(6, (9, 8, 7), 4)


def smooth() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 8), nn.GELU(), nn.Linear(8, 7), nn.Tanh(), nn.Linear(7, 4)
    )


def normed() -> nn.Module:
    """A bias below batch norm has a gradient of zero, whose rounding Adam would turn into steps: there is none."""
    first = [nn.Linear(6, 9, bias=False), nn.BatchNorm1d(9), nn.ReLU()]
    return nn.Sequential(
        *first, nn.Linear(9, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 7), nn.ReLU(), nn.Linear(7, 4)
    )


class Whole(nn.Module):
    """A branch with batch norm, which goes through autograd as a whole, with its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer = nn.BatchNorm1d(9), nn.Linear(9, 9, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x if len(x) > 10**6 else x + torch.tanh(self.norm(self.layer(x)))


def branching() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 9), Whole(), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 4)
    )


def pooled() -> nn.Module:
    images = [nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 3, 2, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(
        *images, nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4)
    )


def dropped() -> nn.Module:
    first = [nn.Linear(6, 9), nn.ReLU(), nn.Dropout(0.3), nn.Linear(9, 8), nn.Tanh(), nn.Dropout(0.2)]
    return nn.Sequential(*first, nn.Linear(8, 7), nn.ReLU(), nn.Linear(7, 4))


def binary() -> nn.Module:
    first = [nn.Linear(6, 9), altmin.Sign(), nn.Linear(9, 8), altmin.Sign(), nn.Linear(8, 7)]
    return nn.Sequential(*first, altmin.Sign(), nn.Linear(7, 4))


CASES: dict[str, tuple[Callable[[], nn.Module], str, dict[str, Any]]] = {
    "straight": (straight, "am-adam", {}),
    "smooth": (smooth, "am-adam", {}),
    "weights-first": (smooth, "am-sgd", {"order": "weights-first"}),
    "normed": (normed, "am-adam", {}),
    "branching": (branching, "am-adam", {}),
    "pooled": (pooled, "am-adam", {}),
    "binary": (binary, "am-adam", {}),
    "memory": (straight, "am-mem", {}),
    "fitted": (straight, "am-mem-fitted", {}),
    "decayed": (smooth, "am-mem", {"damping": 3.0, "weight_decay": 0.1}),
}


def trainer(name: str, device: str = "cpu") -> altmin.AltMin:
    make, method, options = CASES.get(name, (dropped, "am-adam", {}))
    torch.manual_seed(3)
    found: Any = create(method, make().to(device, F64), **options)
    return found


def batches() -> list[tuple[Tensor, Tensor]]:
    g = torch.Generator().manual_seed(1)
    return [(torch.randn(n, 6, generator=g, dtype=F64), torch.randint(4, (n,), generator=g)) for n in SIZES]


def numbers(metrics: Any) -> list[float]:
    return [float(metrics.loss), metrics.objective, *metrics.residuals, *metrics.movements]


def in_parts(am: altmin.AltMin, x: Tensor, y: Tensor, parts: int, least: int) -> float:
    """A step of one process: it gathers the parts, and then applies them. Returns the mean loss."""
    parts, loss = max(1, min(parts, len(x) // least)), 0.0
    for i in range(parts):
        first, end = bounds(len(x), i, parts)
        loss += float(am.gather(x[first:end], y[first:end]).loss) * (end - first) / len(x)
    am.apply()
    return loss
