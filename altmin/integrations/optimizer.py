"""A method of training in the place of a torch optimizer, where a library's training loop expects one."""

from collections.abc import Callable
from typing import Any

import torch

from altmin.methods.protocol import Method


class MethodOptimizer(torch.optim.Optimizer):
    """Optimizer whose `step(closure)` runs the closure, in which the method takes its step, and returns its result.

    The groups are those of `method.optimizer`, so a scheduler attached here moves the method's learning rate; a method
    that has none gets one group with the rate 0. `state_dict` is the method's: moments, memories, penalty.

    >>> import altmin
    >>> method = altmin.methods.create("am-sgd", torch.nn.Linear(2, 3), lr=0.5)
    >>> optimizer = MethodOptimizer(method)
    >>> scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    >>> metrics = optimizer.step(lambda: method.step(torch.eye(2), torch.tensor([0, 2])))
    >>> scheduler.step()
    >>> method.optimizer.param_groups[0]["lr"]
    0.05
    """

    def __init__(self, method: Method):
        self.method = method
        inner = method.optimizer
        super().__init__(
            [{"params": list(method.model.parameters()), "lr": 0.0}] if inner is None else inner.param_groups, {}
        )
        self._share()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Return the closure's result. ValueError without one: the method's step needs the mini-batch."""
        if closure is None:
            raise ValueError("a method of altmin steps on a mini-batch: use step(lambda: method.step(x, y))")
        result = closure()
        self._share()
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Do nothing: a method sets its gradients in each step."""

    def state_dict(self) -> dict[str, Any]:
        return self.method.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a `state_dict`; ValueError, and nothing changes, for one that does not fit."""
        self.method.load_state_dict(state_dict)
        self._share()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "method": self.method}

    def _share(self) -> None:
        """Share groups and state with the method's optimizer, which makes new ones when it loads a state."""
        if self.method.optimizer is not None:
            self.param_groups, self.state = self.method.optimizer.param_groups, self.method.optimizer.state
