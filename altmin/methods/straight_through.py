"""Backprop through activations without derivatives, with the straight-through estimate in place of a derivative."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from altmin.calculus.context import LOCAL, Context
from altmin.common.errors import Diverged, demand
from altmin.core.losses import LossFunction, adapt
from altmin.core.trainer import check, check_model
from altmin.layers import straight_through as estimated
from altmin.methods.backprop import Backprop
from altmin.methods.base import LossOnly, OptimizerMethod, without_model
from altmin.methods.layered import demand_finite, demand_step, demand_unchanged
from altmin.methods.protocol import register


class CheckedLoss(nn.Module):
    """A loss that refuses targets which do not fit the output with a ValueError."""

    def __init__(self, loss: LossFunction):
        super().__init__()
        self.loss, self.adapted = loss, adapt(loss)

    def forward(self, output: Tensor, y: Tensor) -> Tensor:
        self.adapted.prepare(output.detach(), y)
        self.adapted.check(output, y)
        return self.loss(output, y)


class StraightThroughBackprop(OptimizerMethod):
    """A step of backprop in which every `Sign` and `Staircase` of the model passes the gradient on where |x| <= 1.

    Only the steps see an estimate: `model(x)` stays the discrete net, and a backward pass of one's own is refused as
    before. options: what the factory was given.
    """

    complete = False

    def __init__(self, backprop: Backprop, options: dict[str, Any]):
        super().__init__(backprop.model, options, backprop.optimizer)
        self.backprop = backprop

    def step(self, x: Tensor, y: Tensor, *, context: Context = LOCAL) -> LossOnly:
        """One mini-batch. ValueError or TypeError if it does not fit the model, `Diverged` if loss or weights would not
        be finite; then nothing has changed."""
        demand_unchanged(self.model, optimizer=self.optimizer)
        check(x, y)
        demand_finite(x, y)
        buffers = list(self.model.buffers())
        kept = [b.clone() for b in buffers]
        try:
            loss = self._differentiate(x, y, context)
            demand_step(loss, self.optimizer)
            self._demand_finite_buffers(kept)
        except Exception:
            for b, before in zip(buffers, kept, strict=True):  # batch norm counts in the forward pass
                b.copy_(before)
            raise
        self.backprop.update()
        return LossOnly(loss)

    def _differentiate(self, x: Tensor, y: Tensor, context: Context) -> Tensor:
        try:
            backprop = copy.copy(self.backprop)
            backprop.model = estimated(self.model)
            return backprop.differentiate(x, y, context=context)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, IndexError) as error:  # torch's own, for shapes that do not fit
            words = str(error).partition("\n")[0]
            raise ValueError(f"the model does not take samples of {tuple(x.shape[1:])}: {words}") from error

    def _demand_finite_buffers(self, kept: list[Tensor]) -> None:
        """`Diverged` if a buffer, such as a variance of batch norm, has left the finite numbers since it was `kept`."""
        pairs = zip(self.model.buffers(), kept, strict=True)
        lost = [(before.isfinite() & ~now.isfinite()).any() for now, before in pairs]
        if lost and bool(torch.stack(lost).any()):
            raise Diverged("a buffer of the model", "give inputs of a smaller size")


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
    options = without_model(locals())
    for name in ("lr", "weight_decay"):
        demand("straight-through", name, options[name])
    check_model(model)
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("all parameters are frozen, or there are none: there is nothing to train")
    optimizer = torch.optim.Adam(model.parameters(), lr, weight_decay=weight_decay, fused=True)
    backprop = Backprop(model, optimizer, CheckedLoss(loss or nn.CrossEntropyLoss()), clip_norm)
    return StraightThroughBackprop(backprop, options)
