"""Modules equivalent to functions of torch: modules have closed forms, functions have none."""

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from altmin.layers import Last, Scale, View

_ACTIVATIONS = (
    *("GELU", "SiLU", "Mish", "ELU", "SELU", "CELU", "ReLU6", "Softplus", "Softsign", "Hardtanh", "Hardswish"),
    *("Hardsigmoid", "LogSigmoid", "Tanhshrink"),
)
_POOLS = {"max_pool": "MaxPool", "avg_pool": "AvgPool"}
_POOLS |= {f"adaptive_{name}": f"Adaptive{kind}" for name, kind in _POOLS.items()}
MODULES: dict[Any, type[nn.Module]] = {
    **dict.fromkeys((F.relu, F.relu_, torch.relu, torch.relu_, "relu", "relu_"), nn.ReLU),
    **dict.fromkeys((F.tanh, torch.tanh, "tanh"), nn.Tanh),
    **dict.fromkeys((F.sigmoid, torch.sigmoid, "sigmoid"), nn.Sigmoid),
    **dict.fromkeys((torch.flatten, "flatten"), nn.Flatten),
    F.leaky_relu: nn.LeakyReLU,
    **{getattr(F, name.lower()): getattr(nn, name) for name in _ACTIVATIONS},
    **{getattr(F, f"{name}{d}d"): getattr(nn, f"{kind}{d}d") for name, kind in _POOLS.items() for d in (1, 2, 3)},
}
"""Functions, and names of methods, whose arguments after the input are those of the module, in its order or by name."""
RESHAPES = {"view", "reshape", torch.reshape}
FACTORS = {operator.mul, torch.mul, "mul", operator.truediv, torch.div, "div"}
WITHOUT_EFFECT = ("inplace", "return_indices")
"""Arguments that do not matter for a function's value. One that returns indices is another function for torch.fx."""


def module_of(nodes: Sequence[fx.Node], source: fx.Node) -> nn.Module | None:
    """Return a module that computes from the value of `source` what the nodes do; None if there is none here.

    >>> graph = fx.Graph()
    >>> x = graph.placeholder("x")
    >>> module_of([graph.call_function(F.leaky_relu, (x, 0.1))], x), module_of([graph.call_method("sum", (x,))], x)
    (LeakyReLU(negative_slope=0.1), None)
    """
    last = nodes[-1]
    if last.op not in ("call_function", "call_method") or last.all_input_nodes[:1] != [source]:
        return None
    if last.target in RESHAPES:
        return _reshape(nodes, source)
    if len(nodes) > 1 or len(last.all_input_nodes) > 1:
        return None
    if last.target in FACTORS:
        return _scale(last)
    if last.target is operator.getitem:
        return Last() if last.args == (source, (slice(None), -1)) else None
    kind, args = MODULES.get(last.target), last.args[1:]
    if kind is None or last.args[:1] != (source,):
        return None
    kwargs = {"start_dim": 0} if kind is nn.Flatten and not args else {}
    try:
        return kind(*args, **kwargs | {k: v for k, v in last.kwargs.items() if k not in WITHOUT_EFFECT})
    except TypeError:
        return None


def _scale(node: fx.Node) -> nn.Module | None:
    """The `Scale` for a number times a tensor, or for a tensor divided by a number."""
    a, b = node.args if len(node.args) == 2 and not node.kwargs else (None, None)
    divides = node.target in (operator.truediv, torch.div, "div")
    factor: Any = b if isinstance(a, fx.Node) else None if divides else a
    if type(factor) not in (int, float) or (divides and factor == 0):
        return None
    return Scale(1 / factor if divides else factor)


def _reshape(nodes: Sequence[fx.Node], source: fx.Node) -> nn.Module | None:
    *before, last = nodes
    sizes: Any = last.args[1:] or (last.kwargs.get("shape", ()),)
    if len(sizes) == 1 and isinstance(sizes[0], tuple | list):
        sizes = tuple(sizes[0])
    if not before and last.args[:1] == (source,) and sizes and all(type(n) is int for n in sizes):
        return View(*sizes)
    by_samples = len(sizes) == 2 and sizes[1] == -1 and before[-1:] == [sizes[0]] and last.args[0] is source
    return nn.Flatten() if by_samples and _is_batch_size(before, source) else None


def _is_batch_size(nodes: Sequence[fx.Node], source: fx.Node) -> bool:
    """Return whether the nodes are x.size(0), x.shape[0] or x.size()[0]."""
    calls, entry = [(node.target, node.args) for node in nodes], (operator.getitem, (nodes[0], 0))
    shapes = [(getattr, (source, "shape")), entry], [("size", (source,)), entry]
    return calls == [("size", (source, 0))] or calls in shapes
