"""A network that learns from a stream by a method of the library, on mini-batches."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from altmin.common.errors import Diverged
from altmin.core.weights.local import can_follow
from altmin.methods import Method
from altmin.methods.backprop import Backprop
from altmin.stream import growth

Array = NDArray[np.float64]


class MethodNet:
    """A method with a fully connected network, as `GaussNewtonNets` is used. classifies: whether targets are classes.
    random: of the weights of new inputs."""

    def __init__(self, method: Method, classifies: bool, random: np.random.Generator):
        self.method, self.classifies, self.random = method, classifies, random

    @property
    def module(self) -> nn.Module:
        return self.method.model

    @property
    def inputs(self) -> int:
        return int(next(self.method.model.parameters()).shape[1])

    @property
    def outputs(self) -> int:
        return len(list(self.method.model.parameters())[-1])

    def add_inputs(self, count: int) -> None:
        units, inputs = next(self.method.model.parameters()).shape
        he = (2 / (inputs + count)) ** 0.5  # as the others were drawn
        growth.add_inputs(self.method, torch.from_numpy(self.random.normal(0.0, he, (units, count))))

    def add_outputs(self, count: int) -> None:
        growth.add_outputs(self.method, count)

    @torch.no_grad()
    def predict(self, rows: Array) -> Array:
        found = self.method.model(torch.from_numpy(rows))
        probable: Array = (torch.softmax(found, 1) if self.classifies else found).numpy()
        return probable

    def learn(self, rows: Array, targets: Array, weights: Array | None = None) -> None:
        """One step on all rows. `Diverged`, and nothing changes, if it would not be finite; ValueError for weights."""
        if weights is not None:
            raise ValueError("samples with weights are learnt by method='gauss-newton' (nothing was learnt)")
        x, y = torch.from_numpy(rows), torch.from_numpy(targets)
        y = y if self.classifies else y[:, None]
        if not isinstance(self.method, Backprop):
            self.method.step(x, y)
            return
        self.method.differentiate(x, y)
        if not can_follow(self.method.optimizer):
            raise Diverged("the weights' next value", "lower the learning rate, or give inputs of a smaller size")
        self.method.update()
