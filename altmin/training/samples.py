"""The samples of a run: the order in which an epoch sees them, in how many batches, and where they go."""

import hashlib

import torch
from torch import Tensor, nn

Samples = tuple[Tensor, Tensor]


def epoch_order(samples: int, seed: int, epoch: int) -> Tensor:
    """The order in which epoch `epoch` (from 0) sees the samples: a function of seed and epoch alone.

    The generator looks at 32 bits of its seed only, so the pair is hashed rather than packed.
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
    """How many batches an epoch has. A smaller last batch counts, unless batch norm met a single sample.

    >>> batches_per_epoch(nn.Linear(2, 2), 401, 200), batches_per_epoch(nn.BatchNorm1d(2), 401, 200)
    (3, 2)
    """
    full, rest = divmod(samples, batch_size)
    normed = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())
    alone = rest == 1 and normed and full > 0
    return full + (rest > 0 and not alone)


def device_of(model: nn.Module) -> torch.device:
    """Where the model's parameters are."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))
