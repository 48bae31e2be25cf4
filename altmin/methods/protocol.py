"""What every way to train has in common, and the registry in which each can be found by name."""

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor, nn
from torch.optim import Optimizer

from altmin.errors import unknown


class StepMetrics(Protocol):
    """What one step reports. `loss` is the mini-batch's loss before the update, a tensor without dimensions."""

    @property
    def loss(self) -> Tensor: ...


class Method(Protocol):
    """A way to train `model` in place.

    `step` sees one mini-batch, `end_epoch` closes a pass over the data. An online method learns in `step`; an
    offline one gathers there and learns in `end_epoch`. `optimizer` is what a torch scheduler attaches to.
    """

    @property
    def model(self) -> nn.Module: ...
    @property
    def optimizer(self) -> Optimizer: ...
    def step(self, x: Tensor, y: Tensor) -> StepMetrics: ...
    def end_epoch(self) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


Factory = Callable[..., Method]
_FACTORIES: dict[str, Factory] = {}


def register(name: str) -> Callable[[Factory], Factory]:
    """Makes a factory `f(model, **options) -> Method` known under `name`."""

    def keep(factory: Factory) -> Factory:
        _FACTORIES[name] = factory
        return factory

    return keep


def names() -> list[str]:
    """Every registered method."""
    return sorted(_FACTORIES)


def factory(name: str) -> Factory:
    """The factory registered under `name`; its signature tells the options and its docstring what they do."""
    if name not in _FACTORIES:
        raise unknown("method", name, _FACTORIES)
    return _FACTORIES[name]


def create(name: str, model: nn.Module, **given: Any) -> Method:
    """A method by name, e.g. ``create("am-adam", model, lr=1e-3)``."""
    make = factory(name)
    accepted = options(name)
    for option in given:
        if option not in accepted:
            raise unknown(f"option of method {name!r},", option, accepted)
    return make(model, **given)


def options(name: str) -> list[str]:
    """The names of a method's options."""
    import inspect

    return [p for p in inspect.signature(factory(name)).parameters if p != "model"]
