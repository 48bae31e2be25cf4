"""Backpropagation with Adam or SGD on the same module, to compare with."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from altmin.calculus import products
from altmin.methods.protocol import register


@dataclass(frozen=True)
class LossOnly:
    """The metrics of a step: the loss before the update, a tensor of shape ()."""

    loss: Tensor


class Backprop:
    """A step is `loss.backward()` and one step of a torch optimizer. loss: None is cross-entropy."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, loss: nn.Module | None = None):
        self.model, self.optimizer = model, optimizer
        self.loss = loss or nn.CrossEntropyLoss()

    def step(self, x: Tensor, y: Tensor) -> LossOnly:
        self.optimizer.zero_grad()
        with products.autocast(x):
            loss = self.loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return LossOnly(loss.detach())

    def end_epoch(self) -> None:
        pass

    def why_not_captured(self) -> str:
        """Why a step cannot be captured as a CUDA graph; empty if it can."""
        if isinstance(self.optimizer, torch.optim.Adam) or self.optimizer.defaults.get("fused"):
            return ""
        return f"{type(self.optimizer).__name__} is captured if it is fused; give it fused=True"

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])


@register("adam")
def adam(
    model: nn.Module,
    lr: float = 1e-3,
    weight_decay: float = 0.0,
    loss: nn.Module | None = None,
    fused: bool = False,
) -> Backprop:
    """Backprop with torch.optim.Adam. fused: one kernel updates all weights; on a GPU it can be recorded in a graph."""
    parameters = list(model.parameters())
    recordable = fused and all(p.is_cuda for p in parameters)
    chosen = torch.optim.Adam(parameters, lr, weight_decay=weight_decay, fused=fused or None, capturable=recordable)
    return Backprop(model, chosen, loss)


@register("sgd")
def sgd(
    model: nn.Module,
    lr: float = 0.1,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    loss: nn.Module | None = None,
    fused: bool = False,
) -> Backprop:
    """Backprop with torch.optim.SGD. fused: one kernel updates all weights."""
    chosen = torch.optim.SGD(model.parameters(), lr, momentum=momentum, weight_decay=weight_decay, fused=fused or None)
    return Backprop(model, chosen, loss)
