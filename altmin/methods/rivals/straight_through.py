"""Backprop through activations without derivatives, with the straight-through estimate in place of a derivative."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from altmin.calculus.context import LOCAL, Context
from altmin.core.labels import LossFunction
from altmin.core.trainer import check, check_model
from altmin.layers import straight_through as estimated
from altmin.methods.backprop import Backprop
from altmin.methods.base import LossOnly, OptimizerMethod, demand_finite, demand_step, without_model
from altmin.methods.protocol import register


class StraightThroughBackprop(OptimizerMethod):
    """A step of backprop in which every `Sign` and `Staircase` of the model passes the gradient on where |x| <= 1.

    Only the steps see an estimate: `model(x)` stays the discrete net, and a backward pass of one's own is refused as
    before. options: the factory's arguments.
    """

    def __init__(self, backprop: Backprop, options: dict[str, Any]):
        super().__init__(backprop.model, options, backprop.optimizer)
        self.backprop = backprop

    def step(self, x: Tensor, y: Tensor, *, context: Context = LOCAL) -> LossOnly:
        """Take one mini-batch. `Diverged` if loss or weights would not be finite; then no weight has changed."""
        check(x, y)
        demand_finite(x, y)
        backprop = copy.copy(self.backprop)
        backprop.model = estimated(self.model)
        loss = backprop.differentiate(x, y, context=context)
        demand_step(loss, self.optimizer)
        self.backprop.update()
        return LossOnly(loss)


@register("straight-through")
def straight_through(
    model: nn.Module,
    lr: float = 1e-3,
    weight_decay: float = 0.0,
    loss: LossFunction | None = None,
    clip_norm: float | None = None,
) -> StraightThroughBackprop:
    """Minimises the loss by backprop with Adam; through `Sign` and `Staircase` the gradient passes where |x| <= 1.

    The model is any nn.Module, trained as it is; one without such activations is trained by plain backprop. clip_norm:
    the largest norm of all gradients together.

    Bengio, Leonard, Courville 2013, "Estimating or Propagating Gradients Through Stochastic Neurons for Conditional
    Computation"; the gradient stops where |x| > 1 as in Hubara, Courbariaux, Soudry, El-Yaniv, Bengio 2016, "Binarized
    Neural Networks".
    """
    check_model(model)
    optimizer = torch.optim.Adam(model.parameters(), lr, weight_decay=weight_decay, fused=True)
    return StraightThroughBackprop(Backprop(model, optimizer, loss, clip_norm), without_model(locals()))
