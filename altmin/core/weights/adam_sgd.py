"""Adam, AdamW and SGD as functions of tensors: one formula for local rules, memories, ensembles and recorded steps.

The few numbers of a step are computed first and by themselves, in double precision where tensors are counted; the rest,
entry by entry, is one pass over memory. An ordinary step leaves the same formulas to torch's fused kernels.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

Numbers = Mapping[str, Any]
BETAS, EPS = (0.9, 0.999), 1e-8
"""Adam's defaults in torch."""


def coefficients(numbers: Numbers, step: Any) -> dict[str, Any]:
    """Return the factors of Adam's `step`-th step, from 1, given its lr, beta1, beta2 and eps as numbers or tensors."""
    beta1, beta2 = numbers["beta1"], numbers["beta2"]
    root = correction(beta2, step) ** 0.5
    rate = numbers["lr"] * root / correction(beta1, step)
    return {"rate": rate, "eps": numbers["eps"] * root, "new1": 1 - beta1, "new2": 1 - beta2}


def correction(beta: Any, step: Any) -> Tensor:
    """Return 1 - beta**step for steps from 1, without cancellation.

    >>> correction(0.9, torch.tensor(2.0))
    tensor(0.1900)
    """
    log = torch.log(beta) if isinstance(beta, Tensor) else math.log(beta) if beta else -math.inf
    return -torch.expm1(step * log)


def adam(m: Tensor, v: Tensor, g: Tensor, c: Numbers) -> tuple[Tensor, Tensor, Tensor]:
    """Return the change of weights by one step of Adam with the gradient g, and the next moments.

    >>> c = coefficients({"lr": 0.1, "eps": 0.0, "beta1": 0.9, "beta2": 0.999}, torch.tensor(1.0))
    >>> adam(torch.zeros(1), torch.zeros(1), torch.tensor([0.5]), c)[0]
    tensor([-0.1000])
    """
    m, v = torch.lerp(m, g, like(g, c["new1"])), torch.lerp(v, g * g, like(g, c["new2"]))
    return adam_direction(m, v, c) * like(g, -c["rate"]), m, v


def adam_direction(m: Tensor, v: Tensor, c: Numbers) -> Tensor:
    """Return the step against which Adam moves with c["rate"], for moments that have the newest gradient."""
    return m / (v.sqrt() + like(v, c["eps"]))


def sgd(velocity: Tensor, g: Tensor, lr: Any, momentum: Any) -> tuple[Tensor, Tensor]:
    """Return the change of weights by one step of gradient descent, and the next velocity, which starts at zero.

    >>> sgd(torch.ones(1), torch.ones(1), 0.1, 0.5)
    (tensor([-0.1500]), tensor([1.5000]))
    """
    velocity = momentum * velocity + g
    return -lr * velocity, velocity


def like(t: Tensor, number: Any) -> Any:
    """Return a number in the type of a tensor, so that a double does not widen it."""
    return number.to(t.dtype) if isinstance(number, Tensor) else number
