"""What the tests of merged memories share: sites that begin alike, and their parts of the samples."""

from pathlib import Path

import torch
from coactivation_cases import F64, batch
from torch import Tensor, nn

import altmin
from altmin.training import save_memories

PARTS = [(0, 9), (9, 10), (10, 23)]
"""Of 23 samples: one site has a single one."""


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(27, 3)
    )


def site(make=mlp, share: float = 0.3, seed: int = 0, penalty: altmin.Penalty | None = None, **options):
    """A trainer with the weights of its seed."""
    torch.manual_seed(seed)
    penalty = penalty or altmin.Penalty(0.5, increment=0.1, maximum=None)
    rule = altmin.FittedMemory(**{"damping": 0.1, **options})
    return altmin.AltMin(make().double(), codes=altmin.GradientCodes(share=share), weights=rule, penalty=penalty)


def samples(seed: int = 1, n: int = 23) -> tuple[Tensor, Tensor]:
    x, y = batch(seed, n)
    assert x.dtype == F64
    return x, y


def gather(sites, folder: Path, seed: int = 1) -> list[Path]:
    """Every site gathers its own part of the samples and writes its file."""
    x, y = samples(seed)
    files = []
    for number, (each, (first, last)) in enumerate(zip(sites, PARTS, strict=True)):
        each.gather(x[first:last], y[first:last])
        files.append(folder / f"site{number}.safetensors")
        save_memories(each, files[-1])
    return files


def state(method) -> list[Tensor]:
    """Everything that a step changes."""
    kept = [t for each in method.updates.states.values() for t in each.values()]
    moments = [t for each in method.optimizer.state.values() for t in each.values()]
    mu = torch.tensor(method.penalty.value)
    return [t.detach().clone() for t in (*method.model.parameters(), *kept, *moments, mu)]
