"""Networks that learn a stream by methods of the library, one step a sample, to compare with those of `altmin.stream`.

A network grows while it is trained. New entries of a parameter have moments of zero and share the optimizer's count of
steps, new inputs have co-activations of zero: the state of a network that had them from the start, and never saw an
input there but 0. Parameters stay the same objects, so that trainers and optimizers go on with them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from altmin import methods
from altmin.core.trainer import AltMin
from altmin.methods import Method
from altmin.models import mlp
from altmin.stream import OnlineClassifier, OnlineRegressor
from altmin.stream.estimators import OnlineNetwork

Array = NDArray[np.float64]


class MethodNet:
    """A method with a fully connected network, as `GaussNewtonNets` is used. classifies: whether targets are classes.
    random: of the weights of new inputs."""

    def __init__(self, method: Method, classifies: bool, random: np.random.Generator):
        self.method, self.classifies, self.random, self.module = method, classifies, random, method.model
        self.linears = [layer for layer in method.model.modules() if isinstance(layer, nn.Linear)]

    @property
    def inputs(self) -> int:
        return self.linears[0].in_features

    @property
    def outputs(self) -> int:
        return self.linears[-1].out_features

    def add_inputs(self, count: int, weights: Tensor | None = None) -> None:
        """Give the first layer new inputs with these weights (units, count); None draws them as the others were."""
        layer = self.linears[0]
        old = layer.in_features
        if weights is None:
            he = (2 / (old + count)) ** 0.5
            weights = torch.from_numpy(self.random.normal(0.0, he, (layer.out_features, count)))
        layer.in_features += count
        self._extend(layer.weight, weights, 1)
        memory = self.method.updates.states.get(0) if isinstance(self.method, AltMin) else None
        if isinstance(memory, dict) and {"A", "R"} <= set(memory):  # of a FittedMemory
            memory["A"] = _insert(_insert(memory["A"], old, count, 0), old, count, 1)
            memory["R"] = _insert(memory["R"], old, count, 1)

    def add_outputs(self, count: int) -> None:
        """Give the last layer new outputs, which are 0 until they are trained."""
        layer = self.linears[-1]
        layer.out_features += count
        self._extend(layer.weight, layer.weight.new_zeros(count, layer.in_features), 0)
        self._extend(layer.bias, layer.bias.new_zeros(count), 0)

    def _extend(self, p: Tensor, values: Tensor, dim: int) -> None:
        """Append values to a parameter, and zeros to its moments."""
        shape, zeros = p.shape, torch.zeros_like(values).to(p)
        p.data, p.grad = torch.cat([p.data, values.to(p)], dim), None
        if isinstance(self.method, AltMin):
            for l, block in enumerate(self.method.theta):
                for i in (i for i, q in enumerate(block) if q is p):
                    for moments in (each for each in self.method.updates.states[l].values() if isinstance(each, list)):
                        moments[i] = torch.cat([moments[i], zeros], dim)
            return
        state = {} if self.method.optimizer is None else self.method.optimizer.state.get(p, {})
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == shape:
                state[name] = torch.cat([value, zeros], dim)

    @torch.no_grad()
    def predict(self, rows: Array) -> Array:
        output = self.method.model(torch.from_numpy(rows))
        probable: Array = (torch.softmax(output, 1) if self.classifies else output).numpy()
        return probable

    def learn(self, x: Array, y: float, weight: float = 1.0) -> None:
        """Take one step on a sample (1, inputs)."""
        target = torch.tensor([y]) if self.classifies else torch.tensor([[y]], dtype=torch.float64)
        self.method.step(torch.from_numpy(x), target)


def _insert(t: Tensor, at: int, count: int, dim: int) -> Tensor:
    """Return the tensor with the given number of slices of zeros before slice number `at`."""
    before, after = t.split([at, t.shape[dim] - at], dim)
    zeros = t.new_zeros([count if d == dim else n for d, n in enumerate(t.shape)])
    return torch.cat([before, zeros, after], dim)


class ByMethod(OnlineNetwork):
    """An estimator whose network a method of the library trains, in double precision. options: the method's."""

    def __init__(self, method: str, options: Mapping[str, Any], hidden: tuple[int, ...] = (32, 32), seed: int = 0):
        self.method, self.given = method, dict(options)
        super().__init__(hidden, seed=seed)

    def _made(self, inputs: int, outputs: int, seed: int) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = mlp(inputs, self.hidden, outputs).double()
        loss = nn.CrossEntropyLoss() if self._classifies else nn.MSELoss()
        method = methods.create(self.method, model, loss=loss, **self.given)
        return MethodNet(method, self._classifies, np.random.default_rng(seed))


class MethodClassifier(ByMethod, OnlineClassifier):
    """A classifier by method."""


class MethodRegressor(ByMethod, OnlineRegressor):
    """A regressor by method."""
