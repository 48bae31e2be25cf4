"""Elastic weight consolidation (Kirkpatrick et al., 2017): weights that mattered to earlier tasks are held in place.

    minimise  loss + strength / 2 sum_i F_i (theta_i - theta*_i)^2,

theta* the weights after the last task, F the sum over the tasks seen of the diagonal of their empirical Fisher
information. One anchor with a sum of all F, rather than an anchor for each task, is the form of Huszár (2018): its
size does not grow with the number of tasks.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from altmin.common.errors import demand
from altmin.continual.base import Learner
from altmin.methods.backprop import Backprop, LossOnly
from altmin.training.samples import Samples

CHUNK = 100  # gradients of single samples held at a time


def fisher(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """The diagonal of the empirical Fisher information at the present weights: for every trained parameter, by name,
    the mean over samples of the squared derivative of log p(y | x)."""
    theta = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def log_likelihood(theta: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return -cross_entropy(functional_call(model, theta, (x[None],)), y[None])

    each = vmap(grad(log_likelihood), in_dims=(None, 0, 0))
    total = {name: torch.zeros_like(p) for name, p in theta.items()}
    for xs, ys in zip(x.split(CHUNK), y.split(CHUNK), strict=True):
        for name, gradients in each(theta, xs, ys).items():
            total[name] += gradients.square().sum(0)
    return {name: sums / len(x) for name, sums in total.items()}


class ElasticWeights(Learner):
    """Steps of `method` on the loss and the penalty. strength: lambda. samples: how many of a task's samples, the
    first, its Fisher information is taken from; they are seen once more for it, when the task ends."""

    def __init__(self, method: Backprop, strength: float = 1000.0, samples: int = 2000):
        demand("ElasticWeights", "strength", strength)
        demand("ElasticWeights", "samples", samples, low=1, whole=True)
        super().__init__(method)
        self.strength, self.samples = strength, samples
        self.importance: dict[str, Tensor] = {}
        self.anchor: dict[str, Tensor] = {}

    def step(self, x: Tensor, y: Tensor) -> LossOnly:
        """The loss that it reports is without the penalty."""
        loss = self.method.differentiate(x, y)
        self.add_gradient()
        self.method.update()
        return LossOnly(loss)

    @torch.no_grad()
    def add_gradient(self) -> None:
        """Adds the penalty's gradient, strength F (theta - theta*), to every parameter's `grad`."""
        parameters = dict(self.model.named_parameters())
        for name, importance in self.importance.items():
            p = parameters[name]
            assert p.grad is not None
            p.grad.add_(importance * (p - self.anchor[name]), alpha=self.strength)

    def end_task(self, samples: Samples) -> None:
        """Anchors the weights where they are, and adds the importance that they have for this task."""
        new = fisher(self.model, *(part[: self.samples] for part in samples))
        self.importance = {name: value + self.importance.get(name, 0.0) for name, value in new.items()}
        self.anchor = {name: p.detach().clone() for name, p in self.model.named_parameters() if p.requires_grad}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"importance": self.importance, "anchor": self.anchor}


def ewc(model: nn.Module, strength: float = 1000.0, lr: float = 1e-3, samples: int = 2000) -> ElasticWeights:
    """Elastic weight consolidation with Adam, for a classifier trained with cross-entropy."""
    demand("ewc", "lr", lr)
    return ElasticWeights(Backprop(model, torch.optim.Adam(model.parameters(), lr)), strength, samples)
