"""Networks that learn from a stream: by Gauss-Newton, or by another method of the library on mini-batches.

A network grows while it is trained. New entries of a parameter have moments of zero and share the optimizer's count of
steps, new inputs have co-activations of zero: the state of a network that had them from the start, and never saw an
input there but 0. Parameters stay the same objects, so that trainers and optimizers go on with them.
"""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from altmin import methods
from altmin.common.errors import Diverged, unknown
from altmin.core.trainer import AltMin
from altmin.core.weights.local import can_follow
from altmin.methods import Method
from altmin.methods.backprop import Backprop
from altmin.models import mlp
from altmin.stream.gauss_newton import GaussNewtonNets

Array = NDArray[np.float64]
GAUSS_NEWTON = "gauss-newton"
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    GAUSS_NEWTON: {},
    "am-adam": {"lr": 8e-3},
    "am-mem-fitted": {"lr": 3e-3, "rate": 20.0, "forget": 0.99, "damping": 0.1},
    "am-sgd": {"lr": 0.01, "momentum": 0.0},
    "adam": {"lr": 8e-3},
    "sgd": {"lr": 0.01, "momentum": 0.0},
}
"""By method. What a method keeps beside the weights is an optimizer's state and co-activation memories, which grow."""
HIDDEN: Mapping[str, tuple[int, ...]] = {GAUSS_NEWTON: (64, 32), "am-mem-fitted": (64, 32)}
"""Widths of hidden layers by method, where they are not (32, 32), with which the rates above were chosen."""
REGRESSION: Mapping[str, Mapping[str, Any]] = {"am-mem-fitted": {"rate": 2.0}}
"""What differs for the squared error, whose gradient has no bound."""


class MethodNet:
    """A method with a fully connected network, as `GaussNewtonNets` is used. classifies: whether targets are classes.
    random: of the weights of new inputs."""

    def __init__(self, method: Method, classifies: bool, random: np.random.Generator):
        self.method, self.classifies, self.random = method, classifies, random

    @property
    def module(self) -> nn.Module:
        return self.method.model

    def _linears(self) -> list[nn.Linear]:
        return [layer for layer in self.method.model.modules() if isinstance(layer, nn.Linear)]

    @property
    def inputs(self) -> int:
        return self._linears()[0].in_features

    @property
    def outputs(self) -> int:
        return self._linears()[-1].out_features

    def add_inputs(self, count: int, weights: Tensor | None = None) -> None:
        """Give the first layer new inputs with these weights (units, count); None draws them as the others were."""
        layer = self._linears()[0]
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
        layer = self._linears()[-1]
        layer.out_features += count
        self._extend(layer.weight, layer.weight.new_zeros(count, layer.in_features), 0)
        self._extend(layer.bias, layer.bias.new_zeros(count), 0)

    def _extend(self, p: Tensor, values: Tensor, dim: int) -> None:
        """Append values to a parameter, and zeros to what its optimizer keeps of it."""
        shape = p.shape
        p.data = torch.cat([p.data, values.to(p)], dim)
        p.grad = None
        kept = {} if self.method.optimizer is None else self.method.optimizer.state.get(p, {})
        for name, value in kept.items():
            if isinstance(value, Tensor) and value.shape == shape:
                kept[name] = torch.cat([value, torch.zeros_like(values).to(p)], dim)

    @torch.no_grad()
    def predict(self, rows: Array) -> Array:
        found = self.method.model(torch.from_numpy(rows))
        probable: Array = (torch.softmax(found, 1) if self.classifies else found).numpy()
        return probable

    def learn(self, x: Array, y: float, weight: float = 1.0) -> None:
        """Take one step on a sample (1, inputs). `Diverged`, and no weight changes, if it would not be finite."""
        inputs, target = (
            torch.from_numpy(x),
            torch.tensor([y] if self.classifies else [[y]], dtype=torch.int64 if self.classifies else torch.float64),
        )
        if not isinstance(self.method, Backprop):
            self.method.step(inputs, target)
            return
        self.method.differentiate(inputs, target)
        groups = self.method.optimizer.param_groups
        if not can_follow({(g["lr"], g.get("weight_decay", 0.0)): [(p, p.grad) for p in g["params"]] for g in groups}):
            raise Diverged("the weights' next value", "lower the learning rate, or give inputs of a smaller size")
        self.method.update()


def _insert(t: Tensor, at: int, count: int, dim: int) -> Tensor:
    """Return the tensor with the given number of slices of zeros before slice number `at`."""
    before, after = t.split([at, t.shape[dim] - at], dim)
    zeros = t.new_zeros([count if d == dim else n for d, n in enumerate(t.shape)])
    return torch.cat([before, zeros, after], dim)


def widths(name: str, hidden: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the widths of hidden layers: as given, or those of the method."""
    return HIDDEN.get(name, (32, 32)) if hidden is None else hidden


def build(
    name: str,
    widths: tuple[int, tuple[int, ...], int],
    classes: bool,
    lr: float | None,
    options: Mapping[str, Any] | None,
    seed: int,
    members: int,
) -> GaussNewtonNets | MethodNet:
    """Return a fully connected network in double precision, which costs small nets nothing. widths: of its inputs,
    hidden layers and outputs. classes: whether it classifies. members: how many nets of Gauss-Newton are averaged.
    ValueError for a method that cannot learn from a stream, and for options that it does not take."""
    if name not in DEFAULTS:
        raise unknown("method for a stream", name, DEFAULTS)
    inputs, hidden, outputs = widths
    given = copy.deepcopy(dict(options or {}))
    if name == GAUSS_NEWTON:
        if lr is not None:
            raise ValueError("method 'gauss-newton' has no learning rate; leave lr out, or choose another method")
        for option in given:
            if option not in (accepted := ("start", "forget", "floor", "walk")):
                raise unknown("option of method 'gauss-newton',", option, accepted)
        return GaussNewtonNets(inputs, hidden, outputs if classes else 0, seed, members, **given)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = mlp(*widths).double()
    loss = nn.CrossEntropyLoss() if classes else nn.MSELoss()
    own = {**DEFAULTS[name], **({} if classes else REGRESSION.get(name, {}))}
    chosen = {**own, **given, **({} if lr is None else {"lr": lr})}
    return MethodNet(methods.create(name, model, loss=loss, **chosen), classes, np.random.default_rng(seed))
