"""What tells one run from another, in words: a run that goes on from a checkpoint must be the one that wrote it."""

from typing import Any

import torch
from torch import nn

from altmin.calculus.context import LOCAL, Context
from altmin.common.describe import describe, digest, kind
from altmin.methods.offline import Offline
from altmin.runners import precision
from altmin.runners.distributed import Distributed
from altmin.runners.layer_parallel import LayerParallel
from altmin.runners.recorded import Recorded
from altmin.training.samples import Samples

ROWS = 64
"""How many samples the fingerprint of data looks at."""


def method_settings(method: Any, context: Context = LOCAL) -> dict[str, str]:
    """A method's kind, parts and options, its model, and the precision of products as it is set for a GPU, since a run
    may go on with one or without. A recorded step is its method's, and so is one of which the samples or the blocks are
    spread over ranks, but for the parts in which a mini-batch passes through them."""
    inner = method.method if isinstance(method, Recorded | Distributed) else method
    in_parts = {"micro_batches": str(inner.micro_batches)} if isinstance(inner, LayerParallel) else {}
    inner = inner.method if isinstance(inner, LayerParallel) else inner
    found = in_parts | {"method": type(inner).__name__, "optimizer": optimizer_settings(inner.optimizer)}
    found |= {name: describe(value) for name, value in getattr(inner, "options", {}).items()}
    parts = inner.method if isinstance(inner, Offline) else inner
    found |= {
        name: describe(getattr(parts, name)) for name in ("codes", "weights", "penalty", "loss") if hasattr(parts, name)
    }
    found["model"] = parameters(inner.model)
    found["layers"] = " ".join(repr(inner.model).split())
    at: Any = getattr(parts, "at", None)
    if at is not None:
        found["cut after"] = ", ".join(sorted(at)) or "nothing"
    found["precision of products"] = precision.current(torch.device("cuda"), context)
    return found


def optimizer_settings(optimizer: Any) -> str:
    """An optimizer's kind and numbers, e.g. "Adam(lr=0.001, betas=(0.9, 0.999), eps=1e-08)"."""
    if optimizer is None:
        return "none"
    numbers = [
        ", ".join(f"{k}={v}" for k, v in group.items() if type(v) in (int, float, tuple))
        for group in optimizer.param_groups
    ]
    return f"{type(optimizer).__name__}({'; '.join(numbers)})"


def parameters(model: nn.Module) -> str:
    """Names, shapes and types of a model's parameters and buffers, and which are frozen."""
    frozen = {name for name, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad}
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return ", ".join(
        f"{name} {'x'.join(map(str, x.shape))} {kind(x).partition(' ')[0]}{' frozen' * (name in frozen)}"
        for name, x in named
    )


def fingerprint(samples: Samples | None) -> str:
    """Number, shapes and types of samples, and a digest of some of them, the first and the last among them.

    >>> x = torch.arange(6.0).reshape(3, 2)
    >>> fingerprint((x, torch.tensor([0, 1, 0])))
    '3 samples, float32 2 and int64, digest 33237f6ad52eb272'
    """
    if samples is None:
        return "none"
    x, y = samples
    rows = torch.linspace(0, len(x) - 1, min(ROWS, len(x)), dtype=torch.float64).round().long()
    parts = [part[rows.to(part.device)] for part in (x, y)]
    return f"{len(x)} samples, {kind(x[0])} and {kind(y[0])}, digest {digest(*parts)}"
