"""The samples of a run: the order in which an epoch sees them, in how many batches, where they go, a fingerprint."""

import hashlib
from typing import Any

import torch
from torch import Tensor, nn

from altmin.common.describe import digest, kind
from altmin.common.inputs import tensors_of

Samples = tuple[Any, Tensor]
"""Inputs, of a model with several of them as `Inputs`, and targets."""
ROWS = 64
"""The number of samples that the fingerprint of data reads."""


def epoch_order(samples: int, seed: int, epoch: int) -> Tensor:
    """The order in which epoch `epoch` (from 0) sees the samples: a function of seed and epoch alone.

    The generator uses only 32 bits of its seed, so the pair is hashed.
    """
    return torch.randperm(samples, generator=generator_of(f"{seed} {epoch}"))


def batch_generator(seed: int, epoch: int, batch: int) -> torch.Generator:
    """Random numbers for one batch (from 0) of an epoch: a function of seed, epoch and batch alone."""
    return generator_of(f"{seed} {epoch} {batch}")


def generator_of(key: str, device: torch.device | str = "cpu") -> torch.Generator:
    """Random numbers that a text determines."""
    digest = hashlib.sha256(key.encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:4], "big"))


def batches_per_epoch(model: nn.Module, samples: int, batch_size: int) -> int:
    """Return how many batches an epoch has. A smaller last batch counts, unless batch norm met a single sample.

    >>> batches_per_epoch(nn.Linear(2, 2), 401, 200), batches_per_epoch(nn.BatchNorm1d(2), 401, 200)
    (3, 2)
    """
    full, rest = divmod(samples, batch_size)
    normed = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())
    alone = rest == 1 and normed and full > 0
    return full + (rest > 0 and not alone)


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the model's parameters."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def fingerprint(samples: Samples) -> str:
    """Number, shapes and types of samples, and a digest of some of them, the first and the last among them.

    >>> x = torch.arange(6.0).reshape(3, 2)
    >>> fingerprint((x, torch.tensor([0, 1, 0])))
    '3 samples, float32 2 and int64, digest 33237f6ad52eb272'
    """
    x, y = samples
    rows = torch.linspace(0, len(x) - 1, min(ROWS, len(x)), dtype=torch.float64).round().long()
    parts = [part[rows.to(part.device)] for part in (*tensors_of(x), y)]
    kinds = " and ".join(kind(part[0]) for part in (*tensors_of(x), y))
    return f"{len(x)} samples, {kinds}, digest {digest(*parts)}"
