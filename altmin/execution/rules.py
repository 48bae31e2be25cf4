"""The weight rules as functions, entry by entry: new tensors from old ones, every option a number or a tensor that
broadcasts against the weights. What `torch.optim` does in place for one run is done here for many, or on a GPU without
a look at the processor."""

from collections.abc import Sequence

import torch
from torch import Tensor

from altmin.fusing import fusible

Number = Tensor | float


@fusible
def adamw(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    step: Number,
    lr: Number,
    beta1: Number,
    beta2: Number,
    eps: Number,
    weight_decay: Number,
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of AdamW, the `step`-th from 1: weights, first and second moments.

    >>> w = torch.tensor([1.0])
    >>> adamw(w, torch.tensor([0.5]), 0 * w, 0 * w, 1, 0.1, 0.9, 0.99, 0.0, 0.0)[0]
    tensor([0.9000])
    """
    first, second = 1 - beta1**step, (1 - beta2**step) ** 0.5  # 1 - 0.999 needs more digits than weights may have
    rate, second, decay, eps = (_like(number, p) for number in (lr / first, second, lr * weight_decay, eps))
    keeps = _like(1 - beta1, p), _like(1 - beta2, p)
    m, v = torch.lerp(m, g, keeps[0]), torch.lerp(v, g * g, keeps[1])
    if isinstance(decay, Tensor) or decay:
        p = p - decay * p
    return torch.addcdiv(p, m * -rate, v.sqrt().div_(second).add_(eps)), m, v


@fusible
def sgd(
    p: Tensor, g: Tensor, velocity: Tensor, lr: Number, momentum: Number, weight_decay: Number
) -> tuple[Tensor, Tensor]:
    """One step of gradient descent: weights and velocity, which starts at zero.

    >>> w = torch.tensor([1.0])
    >>> sgd(w, torch.tensor([0.5]), 0 * w, 0.1, 0.9, 0.0)
    (tensor([0.9500]), tensor([0.5000]))
    """
    lr, momentum, weight_decay = (_like(number, p) for number in (lr, momentum, weight_decay))
    velocity = momentum * velocity + g + weight_decay * p
    return p - lr * velocity, velocity


def shrunk(p: Tensor, threshold: Number) -> Tensor:
    """The proximal step of threshold * |p|_1.

    >>> shrunk(torch.tensor([-3.0, 0.5]), 1.0)
    tensor([-2.,  0.])
    """
    return p.sign() * (p.abs() - _like(threshold, p)).clamp_min(0)


def keep(ok: Tensor, new: Sequence[Tensor], old: Sequence[Tensor]) -> None:
    """Writes new values over old ones where all went well; `ok` has the leading dimensions of the tensors."""
    for a, b in zip(new, old, strict=True):
        torch.where(ok.view(*ok.shape, *[1] * (b.ndim - ok.ndim)), a, b, out=b)


def _like(number: Number, p: Tensor) -> Number:
    """An option in the weights' own numbers, so that it does not turn them into others."""
    return number.to(p.dtype) if isinstance(number, Tensor) else number
