"""What rivals have in common: the metrics of a step, and the state of one torch optimizer."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from altmin.common.state import Stateful, fitted_optimizer
from altmin.core.weights.sparse import tables


@dataclass(frozen=True)
class LossOnly:
    """The metrics of a step: the loss before the update, a tensor of shape ()."""

    loss: Tensor


class OptimizerMethod(Stateful):
    """A method that steps by one torch optimizer and keeps nothing besides.

    options: the arguments of its factory, by name. complete: whether every parameter takes part in every step.
    """

    complete = True

    def __init__(self, model: nn.Module, options: dict[str, Any], optimizer: Optimizer):
        self.model, self.options, self.optimizer = model, options, optimizer

    def __repr__(self) -> str:
        return options_text(self)

    def end_epoch(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict()}

    def state_form(self) -> dict[str, Any]:
        sparse = {id(p) for p in tables(self.model)}
        return {"optimizer": partial(fitted_optimizer, optimizer=self.optimizer, complete=self.complete, tables=sparse)}

    def set_state(self, new: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(new["optimizer"])


def without_model(arguments: dict[str, Any]) -> dict[str, Any]:
    """The options among the arguments of a factory, given as its `locals()`."""
    return {name: value for name, value in arguments.items() if name != "model"}


def options_text(method: Any) -> str:
    """A method and its options, for its `repr`."""
    return f"{type(method).__name__}({', '.join(f'{name}={value!r}' for name, value in method.options.items())})"
