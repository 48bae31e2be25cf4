"""Parts that methods have in common: the metrics of a step, the state of one torch optimizer, finite numbers."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from altmin.common.errors import Diverged
from altmin.common.state import load_optimizer


@dataclass(frozen=True)
class LossOnly:
    """The metrics of a step: the loss before the update, a tensor of shape ()."""

    loss: Tensor


class OptimizerMethod:
    """A method that steps by one torch optimizer and keeps nothing besides.

    options: the arguments of its factory, by name.
    """

    def __init__(self, model: nn.Module, options: dict[str, Any], optimizer: Optimizer):
        self.model, self.options, self.optimizer = model, options, optimizer

    def __repr__(self) -> str:
        return options_text(self)

    def end_epoch(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from another's `state_dict`; one that does not fit is a ValueError, and nothing changes."""
        if set(state) != set(self.state_dict()):
            raise ValueError(f"this is no state of {type(self).__name__}: {state!r:.60}")
        load_optimizer(self.optimizer, state["optimizer"], f"the optimizer of {type(self).__name__}")


def without_model(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the options among the arguments of a factory, given as its `locals()`."""
    return {name: value for name, value in arguments.items() if name != "model"}


def options_text(method: Any) -> str:
    """Return the text of a method and its options, for its `repr`."""
    return f"{type(method).__name__}({', '.join(f'{name}={value!r}' for name, value in method.options.items())})"


def demand_finite(x: Tensor, y: Tensor) -> None:
    """Raise ValueError for a mini-batch with numbers that are not finite."""
    for name, tensor in (("input holds", x), ("targets hold", y)):
        if not bool(tensor.sum().isfinite()) and not bool(tensor.isfinite().all()):  # the sum may overflow
            raise ValueError(f"the {name} NaN or infinite values; clean them before training (nothing was changed)")


def demand_step(loss: Tensor, optimizer: Optimizer) -> None:
    """Raise `Diverged` unless the loss is finite, and a step of the optimizer along the gradients that are set leaves
    weights and squares of gradients finite. Waits for the device once."""
    grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    largest = max(1.0, *(float(group["lr"]) for group in optimizer.param_groups))
    value, *norms = torch.stack([loss, *torch._foreach_norm(grads)]).tolist()
    if not math.isfinite(value):
        raise Diverged("the loss")
    # a norm is infinite where a square of a gradient, as Adam takes it, would be
    if not all(norm * largest < torch.finfo(loss.dtype).max for norm in norms):
        raise Diverged("the weights' next value", "lower the learning rate, or give inputs of a smaller size")
