"""SGD with a rate that falls as 1 / t: the control for what steps that shrink are worth without a memory.

A co-activation memory that keeps everything grows with the samples seen, so what a mini-batch can change shrinks.
"""

import torch
from torch import nn

from altmin.common.errors import demand
from altmin.continual.method import MethodLearner
from altmin.methods.backprop import Backprop


class FallingRate(MethodLearner):
    """A method whose optimizer has the rate lr / (1 + t / batches) after t steps."""

    def __init__(self, method: Backprop, batches: float):
        demand("FallingRate", "batches", batches, above=True)
        super().__init__(method)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(method.optimizer, lambda t: 1 / (1 + t / batches))

    def step(self, x: torch.Tensor, y: torch.Tensor) -> object:
        metrics = super().step(x, y)
        self.schedule.step()
        return metrics


def falling_sgd(model: nn.Module, lr: float = 0.1, batches: float = 3.0) -> FallingRate:
    """SGD without momentum whose rate is lr / (1 + t / batches) after t steps."""
    demand("falling-sgd", "lr", lr)
    return FallingRate(Backprop(model, torch.optim.SGD(model.parameters(), lr)), batches)
