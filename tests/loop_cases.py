"""What tests of the training loop share: a problem, a method on a small net, and what came of a run."""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from altmin import methods
from altmin.training import History

Samples = tuple[Tensor, Tensor]


def samples(n: int = 50, seed: int = 0, dtype: torch.dtype = torch.float32) -> Samples:
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return x, x[:, :3].argmax(1)


def numbers(n: int = 50, seed: int = 0) -> Samples:
    """A problem of regression."""
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :2].sin()


def learner(name: str = "am-adam", seed: int = 0, outputs: int = 3, dropout: float = 0.0, **options: Any) -> Any:
    """Dropout draws from the global random state in every step."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, outputs))
    return methods.create(name, model, **{"lr": 0.01, **options})


class Pairs(Dataset[Samples]):
    """Samples one by one."""

    def __init__(self, x: Tensor, y: Tensor):
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Samples:
        return self.x[i], self.y[i]


def outcome(method: Any, history: History) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The weights bit for bit, and the rows but for their times."""
    rows = asdict(history)
    for row in rows["epochs"]:
        row.pop("seconds")
    return {name: value.numpy().tobytes() for name, value in method.model.state_dict().items()}, rows


def weights(method: Any) -> list[Tensor]:
    return [p.detach().clone() for p in method.model.parameters()]
