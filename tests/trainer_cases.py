"""Models, batches and weight rules on which the trainer is tried."""

import copy

import pytest
import torch
from torch import Tensor, nn

import altmin

F64 = torch.float64

RULES = {
    "adam": lambda: altmin.LocalAdam(lr=0.02),
    "sgd with momentum": lambda: altmin.LocalSGD(lr=0.1, momentum=0.9),
    "memory": lambda: altmin.FittedMemory(rest=altmin.LocalAdam(lr=0.02)),
    "memory by sweeps": lambda: altmin.FittedMemory(sweeps=1, forget=0.9),
}
EVERY_RULE = pytest.mark.parametrize("rule", RULES)


def mlp(activation=nn.ReLU, seed: int = 0, dtype: torch.dtype = F64) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), activation(), nn.Linear(8, 6), activation(), nn.Linear(6, 3)).to(dtype)


def convolutional(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        *(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 2, padding=1), nn.BatchNorm2d(4), nn.ReLU()),
        *(nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(16, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 3)),
    ).double()


def batch(seed: int = 1, n: int = 10, dtype: torch.dtype = F64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=generator, dtype=dtype), torch.randint(3, (n,), generator=generator)


def clone(tree):
    return copy.deepcopy(tree)


def equal(a, b) -> bool:
    """Whether two nested states are the same, tensors bit by bit."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b
