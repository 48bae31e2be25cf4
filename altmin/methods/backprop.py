"""The yardstick: backpropagation with Adam or SGD on the same module, as people write it."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from altmin.calculus import products
from altmin.methods.protocol import register


@dataclass(frozen=True)
class LossOnly:
    loss: Tensor


class Backprop:
    """`loss.backward()` and a torch optimizer."""

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
    """Backprop with torch.optim.Adam; `fused` updates all weights at once, on a GPU without a look at the processor."""
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
    """Backprop with torch.optim.SGD; `fused` updates all weights at once."""
    chosen = torch.optim.SGD(model.parameters(), lr, momentum=momentum, weight_decay=weight_decay, fused=fused or None)
    return Backprop(model, chosen, loss)
