"""Adam, AdamW and SGD as functions of many members, each with options of its own: new rows from old ones.

`coefficients` are computed first and by themselves: they are few and need more digits than weights may have, while the
rest, entry by entry, is then one pass over memory. A single method leaves all this to torch's fused kernels.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

Row = dict[str, Tensor]
"""Weights under "weights", moments under the names that torch's optimizers use: of one member (entries), of all
(members, entries)."""


def coefficients(options: Mapping[str, Tensor], step: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    """What the optimizer's `step`-th step from 1 multiplies by, in the weights' type and broadcasting against a row.

    options: lr, weight_decay, l1, momentum of SGD, beta1, beta2 and eps of Adam; those that are left out are zero.
    """
    c, lr = dict(options), options["lr"]
    if "eps" in c:
        beta1, beta2 = (c.get(name, torch.zeros_like(lr)) for name in ("beta1", "beta2"))
        c |= {"rate": lr / (1 - beta1**step), "root": (1 - beta2**step) ** 0.5, "new1": 1 - beta1, "new2": 1 - beta2}
    if "l1" in c:
        c["threshold"] = lr * c["l1"]
    return {name: value.to(dtype).unsqueeze(-1) for name, value in c.items()}


def adam(row: Row, g: Tensor, c: Mapping[str, Tensor], decoupled: bool) -> Row:
    """One step of Adam with the gradient g. decoupled: weight decay is that of AdamW.

    >>> row = {"weights": torch.ones(1), "exp_avg": torch.zeros(1), "exp_avg_sq": torch.zeros(1)}
    >>> options = {"lr": torch.tensor(0.1), "beta1": torch.tensor(0.9), "eps": torch.tensor(0.0)}
    >>> adam(row, torch.tensor([0.5]), coefficients(options, torch.tensor(1), torch.float32), False)["weights"]
    tensor([0.9000])
    """
    p = row["weights"]
    if "weight_decay" in c:
        p, g = (p - c["lr"] * c["weight_decay"] * p, g) if decoupled else (p, g + c["weight_decay"] * p)
    m, v = torch.lerp(row["exp_avg"], g, c["new1"]), torch.lerp(row["exp_avg_sq"], g * g, c["new2"])
    p = torch.addcdiv(p, m * -c["rate"], v.sqrt() / c["root"] + c["eps"])
    return {"weights": p, "exp_avg": m, "exp_avg_sq": v}


def sgd(row: Row, g: Tensor, c: Mapping[str, Tensor]) -> Row:
    """One step of gradient descent with the gradient g. The velocity starts at zero.

    >>> row = {"weights": torch.ones(1), "momentum_buffer": torch.ones(1)}
    >>> sgd(row, torch.ones(1), {"lr": torch.tensor(0.1), "momentum": torch.tensor(0.5)})
    {'weights': tensor([0.8500]), 'momentum_buffer': tensor([1.5000])}
    """
    p = row["weights"]
    if "weight_decay" in c:
        g = g + c["weight_decay"] * p
    if "momentum" not in c:
        return {"weights": p - c["lr"] * g}
    velocity = c["momentum"] * row["momentum_buffer"] + g
    return {"weights": p - c["lr"] * velocity, "momentum_buffer": velocity}
