"""A network that grows while it is trained: inputs and outputs that join later, and what is remembered of the others.

New entries of a parameter have moments of zero and share the optimizer's count of steps, new inputs have co-activations
of zero: the state of a network that had them from the start, and never saw an input there but 0. Parameters stay the
same objects, so that trainers and optimizers go on with them.
"""

import torch
from torch import Tensor, nn

from altmin.core.trainer import AltMin
from altmin.methods import Method


def add_inputs(method: Method, weights: Tensor) -> None:
    """Gives the first linear layer of a method's network new inputs with these weights (units, new inputs). Where they
    are 0, its output stays the same."""
    layer = _linears(method.model)[0]
    old, new = layer.in_features, weights.shape[1]
    layer.in_features = old + new
    _extend(method, layer.weight, weights, 1)
    memory = method.updates.states.get(0) if isinstance(method, AltMin) else None
    if isinstance(memory, dict) and {"A", "R"} <= set(memory):  # of a FittedMemory
        memory["A"] = _insert(_insert(memory["A"], old, new, 0), old, new, 1)
        memory["R"] = _insert(memory["R"], old, new, 1)


def add_outputs(method: Method, outputs: int) -> None:
    """Gives the last linear layer of a method's network new outputs, which are 0 until they are trained. The others
    stay the same."""
    layer = _linears(method.model)[-1]
    layer.out_features += outputs
    _extend(method, layer.weight, layer.weight.new_zeros(outputs, layer.in_features), 0)
    _extend(method, layer.bias, layer.bias.new_zeros(outputs), 0)


def _linears(model: nn.Module) -> list[nn.Linear]:
    return [layer for layer in model.modules() if isinstance(layer, nn.Linear)]


def _extend(method: Method, p: Tensor, values: Tensor, dim: int) -> None:
    """Appends values to a parameter, and zeros to what its optimizer keeps of it."""
    shape = p.shape
    p.data = torch.cat([p.data, values.to(p)], dim)
    p.grad = None
    kept = {} if method.optimizer is None else method.optimizer.state.get(p, {})
    for name, value in kept.items():
        if isinstance(value, Tensor) and value.shape == shape:
            kept[name] = torch.cat([value, torch.zeros_like(values).to(p)], dim)


def _insert(t: Tensor, at: int, count: int, dim: int) -> Tensor:
    """The tensor with the given number of slices of zeros before slice number `at`."""
    before, after = t.split([at, t.shape[dim] - at], dim)
    zeros = t.new_zeros([count if d == dim else n for d, n in enumerate(t.shape)])
    return torch.cat([before, zeros, after], dim)
