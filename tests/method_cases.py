"""Models and data on which every registered method can be tried; some train only nets of certain activations."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

import altmin

BACKPROP = ("adam", "adamw", "coactivation", "muon", "sgd")
NAMES = [name for name in altmin.methods.names() if altmin.methods.factory(name).__module__.startswith("altmin.")]
"""The library's methods, without what reproduction/ registers."""
RIVALS = [name for name in NAMES if not name.startswith("am-") and name not in BACKPROP]
ANY_NET = [name for name in NAMES if name not in RIVALS]
"""Methods that train batch norm and dropout too. Those of `RIVALS` are held to test_methods_rivals.py."""
ACTIVATIONS: dict[str, type[nn.Module]] = {"admm": nn.ReLU, "bcd": nn.ReLU}
"""Of methods that do not train a net of Tanh."""

RANDOM: set[str] = {"dtp"}
"""Methods that draw random numbers in a step."""


def net(name: str, *sizes: int, seed: int = 1, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """A fully connected net of these sizes (4, 6, 5, 3 if none is given) that the method can train."""
    inputs, *hidden, outputs = sizes or (4, 6, 5, 3)
    torch.manual_seed(seed)
    return altmin.models.mlp(inputs, hidden, outputs, ACTIVATIONS.get(name, nn.Tanh)).to(dtype)


def problem(samples: int = 60, seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Three classes of points in four dimensions which a line cannot part: the class is told by x0 and x1 * x2."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 4, generator=g, dtype=torch.float64)
    y = torch.where(x[:, 1] * x[:, 2] > 0.3, 2, (x[:, 0] > 0).long())
    return x.to(dtype), y


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float((model(x).argmax(1) == y).double().mean())


def looped(method: Any, batches: Iterable[Any], epochs: int, rate: Callable[[int], float] | None = None) -> Any:
    """The method after a loop of one's own. rate: the learning rate of an epoch."""
    for epoch in range(epochs):
        for group in method.optimizer.param_groups if rate is not None else ():
            group["lr"] = rate(epoch)
        for batch in batches:
            method.step(*batch)
        method.end_epoch()
    return method
