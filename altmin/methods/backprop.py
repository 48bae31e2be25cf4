"""Backpropagation with Adam or SGD on the same module, to compare with."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from altmin.calculus import products
from altmin.calculus.sample_weight import check_weights
from altmin.describe import describe
from altmin.errors import demand
from altmin.losses import LossFunction, adapt, by_label
from altmin.methods.protocol import register
from altmin.state import check_optimizer, demand_entries, demand_separate, load_optimizer
from altmin.weights.sparse import NOT_SPARSE, ROWS_ARE_COUNTED, tables


@dataclass(frozen=True)
class LossOnly:
    """The metrics of a step: the loss before the update, a tensor of shape ()."""

    loss: Tensor


class Backprop:
    """A step is `loss.backward()` and one step of a torch optimizer. loss: None is cross-entropy; torch's takes outputs
    (samples, time, classes) here too."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, loss: LossFunction | None = None):
        self.model, self.optimizer = model, optimizer
        self.loss = by_label(loss or nn.CrossEntropyLoss())
        if optimizer.defaults.get("fused"):
            demand_separate(model.named_parameters())

    def __repr__(self) -> str:
        return f"Backprop(optimizer={' '.join(repr(self.optimizer).split())}, loss={describe(self.loss)})"

    def step(self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> LossOnly:
        """sample_weight: one for each sample; the loss is then the weighted mean."""
        loss = self.differentiate(x, y, sample_weight)
        self.optimizer.step()
        return LossOnly(loss)

    def differentiate(self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """The loss; its gradient is left in every parameter's `grad`, and no weight has moved."""
        self.optimizer.zero_grad()
        with products.autocast(x):
            output = self.model(x)
            if sample_weight is None:
                loss: Tensor = self.loss(output, y)
            else:
                known = adapt(self.loss)
                loss = known.weighted(output, known.prepare(output, y), check_weights(sample_weight, x))
        loss.backward()
        return loss.detach()

    def end_epoch(self) -> None:
        pass

    def why_not_captured(self) -> str:
        """Why a step cannot be captured as a CUDA graph; empty if it can."""
        if tables(self.model):
            return f"{ROWS_ARE_COUNTED}; {NOT_SPARSE}"
        if isinstance(self.optimizer, torch.optim.Adam) or self.optimizer.defaults.get("fused"):
            return ""
        return f"{type(self.optimizer).__name__} is captured if it is fused; give it fused=True"

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict()}

    def check_state(self, state: Any) -> None:
        """ValueError unless `load_state_dict` can take the state: then it takes all of it."""
        demand_entries(state, ("optimizer",), "a Backprop")
        check_optimizer(self.optimizer, state["optimizer"], tables={id(p) for p in tables(self.model)})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from another's `state_dict`; one that does not fit is a ValueError, and nothing changes."""
        self.check_state(state)
        load_optimizer(self.optimizer, state["optimizer"])


@register("adam")
def adam(
    model: nn.Module,
    lr: float = 1e-3,
    weight_decay: float = 0.0,
    loss: nn.Module | None = None,
    fused: bool = False,
) -> Backprop:
    """Backprop with torch.optim.Adam. fused: one kernel updates all weights; on a GPU it can be recorded in a graph."""
    demand("adam", "lr", lr)
    demand("adam", "weight_decay", weight_decay)
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
    demand("sgd", "lr", lr)
    demand("sgd", "momentum", momentum)
    demand("sgd", "weight_decay", weight_decay)
    chosen = torch.optim.SGD(model.parameters(), lr, momentum=momentum, weight_decay=weight_decay, fused=fused or None)
    return Backprop(model, chosen, loss)
