"""What rivals have in common: the metrics of a step, and the state of one torch optimizer."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

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
    """The options among the arguments of a factory, given as its `locals()`."""
    return {name: value for name, value in arguments.items() if name != "model"}


def options_text(method: Any) -> str:
    """A method and its options, for its `repr`."""
    return f"{type(method).__name__}({', '.join(f'{name}={value!r}' for name, value in method.options.items())})"
