"""Backprop with the co-activation memory."""

from typing import Any

from torch import nn

from altmin.methods.backprop import Backprop
from altmin.methods.protocol import register
from altmin.optim import CoActivation


@register("coactivation")
def coactivation(  # noqa: PLR0913  (the options of the optimizer)
    model: nn.Module,
    lr: float = 0.004,
    beta: float = 0.9,
    forget: float = 0.6,
    damping: float = 1.0,
    rank: int = 32,
    weight_decay: float = 0.0,
    decay_biases: bool = True,
    every: int = 40,
    rows: int = 100,
    loss: nn.Module | None = None,
    clip_norm: float | None = None,
) -> Backprop:
    """Backprop with `altmin.optim.CoActivation`, the memory of am-mem on backprop's gradients; options as there.

    clip_norm: as in `adam`."""
    options: dict[str, Any] = {"lr": lr, "beta": beta, "forget": forget, "damping": damping, "rank": rank}
    options |= {"weight_decay": weight_decay, "decay_biases": decay_biases, "every": every, "rows": rows}
    return Backprop(model, CoActivation(model, **options), loss, clip_norm)
