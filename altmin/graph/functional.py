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
MODULES: dict[Any, type[nn.Module]] = {
    **dict.fromkeys((F.relu, F.relu_, torch.relu, torch.relu_, "relu", "relu_"), nn.ReLU),
    **dict.fromkeys((F.tanh, torch.tanh, "tanh"), nn.Tanh),
    **dict.fromkeys((F.sigmoid, torch.sigmoid, "sigmoid"), nn.Sigmoid),
    **dict.fromkeys((torch.flatten, "flatten"), nn.Flatten),
    F.leaky_relu: nn.LeakyReLU,
    **{getattr(F, name.lower()): getattr(nn, name) for name in _ACTIVATIONS},
    **{getattr(F, f"max_pool{d}d"): getattr(nn, f"MaxPool{d}d") for d in (1, 2, 3)},
    **{getattr(F, f"avg_pool{d}d"): getattr(nn, f"AvgPool{d}d") for d in (1, 2, 3)},
    **{getattr(F, f"adaptive_max_pool{d}d"): getattr(nn, f"AdaptiveMaxPool{d}d") for d in (1, 2, 3)},
    **{getattr(F, f"adaptive_avg_pool{d}d"): getattr(nn, f"AdaptiveAvgPool{d}d") for d in (1, 2, 3)},
}
"""Functions, and names of methods, whose arguments after the input are those of the module, in its order or by name."""
RESHAPES = {"view", "reshape", torch.reshape}
FACTORS = {operator.mul, torch.mul, "mul", operator.truediv, torch.div, "div"}
WITHOUT_EFFECT = ("inplace", "return_indices")
"""Arguments that do not matter for a function's value. One that returns indices is another function for torch.fx."""


def module_of(nodes: Sequence[fx.Node], given: fx.Node) -> nn.Module | None:
    """A module that computes from the value of `given` what the nodes do; None if there is none here.

    >>> graph = fx.Graph()
    >>> x = graph.placeholder("x")
    >>> module_of([graph.call_function(F.leaky_relu, (x, 0.1))], x), module_of([graph.call_method("sum", (x,))], x)
    (LeakyReLU(negative_slope=0.1), None)
    """
    last = nodes[-1]
    if last.op not in ("call_function", "call_method") or not last.args or last.all_input_nodes[:1] != [given]:
        return None
    if last.args[0] is not given and last.target not in FACTORS:
        return None
    if last.target in RESHAPES:
        return _reshape(nodes, given)
    if last.target is operator.getitem:
        return Last() if len(nodes) == 1 and last.args[1] == (slice(None), -1) else None
    if last.target in FACTORS:
        return _scale(last) if len(nodes) == 1 else None
    kind = MODULES.get(last.target)
    args, kwargs = last.args[1:], {k: v for k, v in last.kwargs.items() if k not in WITHOUT_EFFECT}
    if kind is None or len(nodes) > 1 or last.all_input_nodes != [given]:
        return None
    if kind is nn.Flatten and not args:
        kwargs.setdefault("start_dim", 0)
    try:
        return kind(*args, **kwargs)
    except TypeError:
        return None


def _scale(node: fx.Node) -> nn.Module | None:
    """The `Scale` for a number times a tensor, or for a tensor divided by a number."""
    if len(node.args) != 2 or node.kwargs:
        return None
    a, b = node.args
    divides = node.target in (operator.truediv, torch.div, "div")
    if type(b) in (int, float) and not (divides and b == 0):
        return Scale(1 / b if divides else b)  # type: ignore[operator, arg-type]
    return Scale(a) if type(a) in (int, float) and not divides else None  # type: ignore[arg-type]


def _reshape(nodes: Sequence[fx.Node], given: fx.Node) -> nn.Module | None:
    *before, last = nodes
    sizes = last.args[1:] or (last.kwargs.get("shape", ()),)
    if len(sizes) == 1 and isinstance(sizes[0], tuple | list):
        sizes = tuple(sizes[0])
    if not before and sizes and all(type(n) is int for n in sizes):
        return View(*sizes)  # type: ignore[arg-type]
    if len(sizes) == 2 and sizes[1] == -1 and isinstance(sizes[0], fx.Node) and before[-1:] == [sizes[0]]:
        return nn.Flatten() if _is_batch_size(before, given) else None
    return None


def _is_batch_size(nodes: Sequence[fx.Node], given: fx.Node) -> bool:
    """Whether the nodes are x.size(0), x.shape[0] or x.size()[0]."""
    *before, last = nodes
    if not before:
        return last.target == "size" and last.args == (given, 0)
    shape = before[0]
    whole = shape.args == (given, "shape") if shape.target is getattr else shape.args == (given,)
    named = shape.target is getattr or shape.target == "size"
    return len(before) == 1 and named and whole and last.target is operator.getitem and last.args == (shape, 0)
