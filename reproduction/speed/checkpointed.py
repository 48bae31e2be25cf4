"""Backprop that keeps the activations of a few layers and computes the others again: the rival in memory."""

import math

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint_sequential

from altmin.methods.backprop import Backprop


class Segments(nn.Module):
    """A sequential model of L layers in sqrt(L) segments, of which only the inputs are kept for the backward pass
    (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost")."""

    def __init__(self, layers: nn.Sequential):
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = checkpoint_sequential(self.layers, math.isqrt(len(self.layers)), x, use_reentrant=False)
        return result


def checkpointed(method: Backprop) -> Backprop:
    """The method with its model in `Segments`. ValueError unless that is an nn.Sequential, TypeError for other methods
    than backprop."""
    if type(method) is not Backprop:
        raise TypeError(f"only backprop keeps activations to compute again, not {type(method).__name__}")
    if not isinstance(method.model, nn.Sequential):
        raise ValueError(f"activations are computed again in an nn.Sequential, not in a {type(method.model).__name__}")
    return Backprop(Segments(method.model), method.optimizer, method.loss, method.clip_norm)
