"""Adam, AdamW and SGD as functions of tensors: one formula for memories, ensembles and recorded steps.

`coefficients` are computed first and by themselves: they are few and need more digits than weights may have, while the
rest, entry by entry, is then one pass over memory. An ordinary step leaves the same formulas to torch's fused kernels.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from altmin.core.step import soft_threshold

Row = dict[str, Tensor]
"""Weights under "weights" and moments under the names that torch's optimizers use, all of one shape."""
BETAS, EPS = (0.9, 0.999), 1e-8
"""Adam's defaults in torch."""


def coefficients(options: Mapping[str, Any], step: Any, dtype: torch.dtype | None = None) -> dict[str, Any]:
    """Return the numbers by which the optimizer's `step`-th step, from 1, multiplies.

    options: lr, weight_decay, l1, momentum of SGD, beta1, beta2 and eps of Adam, as numbers or tensors; those that are
    left out are zero. dtype: of the result, which then broadcasts against rows (members, entries); None for tensors as
    they are.
    """
    c, lr = dict(options), options["lr"]
    if "eps" in c:
        beta1, beta2 = c.get("beta1", 0.0), c.get("beta2", 0.0)
        root = correction(beta2, step) ** 0.5
        c |= {"rate": lr * root / correction(beta1, step), "eps": c["eps"] * root}
        c |= {"new1": 1 - beta1, "new2": 1 - beta2}
    if "l1" in c:
        c["threshold"] = lr * c["l1"]
    if dtype is None:
        return c
    return {name: torch.as_tensor(value, device=lr.device).to(dtype).unsqueeze(-1) for name, value in c.items()}


def correction(beta: Any, step: Any) -> Tensor:
    """Return 1 - beta**step for steps from 1, without cancellation.

    >>> correction(0.9, torch.tensor(2.0))
    tensor(0.1900)
    """
    log = torch.log(beta) if isinstance(beta, Tensor) else math.log(beta) if beta else -math.inf
    return -torch.expm1(step * log)


def adam(moments: Row, g: Tensor, c: Mapping[str, Any]) -> tuple[Tensor, Row]:
    """Return the change of weights by one step of Adam with the gradient g, and the next moments.

    >>> moments, options = {"exp_avg": torch.zeros(1), "exp_avg_sq": torch.zeros(1)}, {"lr": 0.1, "eps": 0.0}
    >>> adam(moments, torch.tensor([0.5]), coefficients(options, torch.tensor(1.0)))[0]
    tensor([-0.1000])
    """
    m = torch.lerp(moments["exp_avg"], g, c["new1"])
    v = torch.lerp(moments["exp_avg_sq"], g * g, c["new2"])
    return adam_direction(m, v, c) * -c["rate"], {"exp_avg": m, "exp_avg_sq": v}


def adam_direction(m: Tensor, v: Tensor, c: Mapping[str, Any]) -> Tensor:
    """Return the step against which Adam moves with c["rate"], for moments that have the newest gradient."""
    return m / (v.sqrt() + c["eps"])


def sgd(moments: Row, g: Tensor, c: Mapping[str, Any]) -> tuple[Tensor, Row]:
    """Return the change of weights by one step of gradient descent, and the next velocity, which starts at zero.

    >>> sgd({"momentum_buffer": torch.ones(1)}, torch.ones(1), {"lr": 0.1, "momentum": 0.5})
    (tensor([-0.1500]), {'momentum_buffer': tensor([1.5000])})
    """
    if "momentum" not in c:
        return -c["lr"] * g, {}
    velocity = c["momentum"] * moments["momentum_buffer"] + g
    return -c["lr"] * velocity, {"momentum_buffer": velocity}


def stepped(kind: str, row: Row, g: Tensor, c: Mapping[str, Any]) -> Row:
    """Return weights and moments after one step, with weight decay and l1. kind: "adam", "adamw" (weight decay is
    decoupled) or "sgd".

    >>> stepped("sgd", {"weights": torch.ones(1)}, torch.ones(1), {"lr": 0.1, "weight_decay": 0.5})
    {'weights': tensor([0.8500])}
    """
    p = row["weights"]
    if "weight_decay" in c:
        p, g = (p - c["lr"] * c["weight_decay"] * p, g) if kind == "adamw" else (p, g + c["weight_decay"] * p)
    change, moments = sgd(row, g, c) if kind == "sgd" else adam(row, g, c)
    p = p + change
    return {"weights": soft_threshold(p, c["threshold"]) if "threshold" in c else p, **moments}
