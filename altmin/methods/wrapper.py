"""Base class of methods that wrap another one: `Offline`, `Recorded`, `Distributed` and `LayerParallel`."""

from typing import Any

from torch import nn
from torch.optim import Optimizer


class Wrapper:
    """A `Method` around `method`, whose `step` is the subclass's own. Everything else is the method's."""

    def __init__(self, method: Any):
        self.method = method

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.method!r})"

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the method that the wrapper does not have."""
        if name == "method":  # not set yet, as in a copy being made
            raise AttributeError(name)
        return getattr(self._current(), name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Raise TypeError for a copy or a pickle of a wrapper that cannot be copied."""
        if reason := self._why_not_copied():
            raise TypeError(reason)
        return super().__reduce_ex__(protocol)

    def _current(self) -> Any:
        """Return the method, up to date; a subclass that delays updates makes them here."""
        return self.method

    def _why_not_copied(self) -> str:
        """Return why there can be no copy of this wrapper; empty if there can."""
        return ""

    @property
    def model(self) -> nn.Module:
        model: nn.Module = self._current().model
        return model

    @property
    def optimizer(self) -> Optimizer | None:
        optimizer: Optimizer | None = self.method.optimizer
        return optimizer

    def end_epoch(self) -> None:
        self._current().end_epoch()

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = self._current().state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from another's `state_dict`; ValueError, and no change, if it does not fit."""
        self._current().load_state_dict(state)
