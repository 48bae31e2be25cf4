"""The protocol of all methods of training, and the registry in which they are found by name."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

from torch import Tensor, nn
from torch.optim import Optimizer

from altmin.calculus.context import Context
from altmin.common.errors import demand, shown, unknown

if TYPE_CHECKING:
    from altmin.core.trainer import AltMin


class StepMetrics(Protocol):
    """The metrics of a step. `loss` is the loss of the mini-batch before the update, a tensor of shape ()."""

    @property
    def loss(self) -> Tensor: ...


class Method(Protocol):
    """A method of training `model` in place.

    `step` takes one mini-batch, `end_epoch` is called after each pass over the data. An online method updates the
    weights in `step`; an offline one gathers there and updates them in `end_epoch`. `optimizer` is the one that a torch
    scheduler attaches to, or None for a method without a learning rate. `state_dict` has what `load_state_dict` needs
    to continue, apart from the model's own; a state that does not fit is a ValueError, and nothing changes.

    `step` also takes a keyword argument `context`, by default `altmin.methods.LOCAL`: one process with all samples. A
    method sums over samples by `context.sum`, counts them by `context.count`, draws random numbers for them by
    `context.draw`. On ranks that each have a part of the samples (`altmin.Distributed`) it then computes what one
    process does. A context belongs to one call
    and is not kept.

    A method that keeps variables for each sample has an attribute `takes_rows` that is True. Its step takes `rows`
    besides, the numbers of the batch's samples in the data (int64, on any device), by which it finds their variables in
    the next pass. Without `rows` the batch is all the data, and the only one until `end_epoch`. On ranks such a step is
    given all samples and chooses its own by `context.shard`; its `end_epoch`, `state_dict` and `load_state_dict` take a
    context too.

    A method that has no parts (codes, weights, penalty) has `options`, the arguments of its factory by name: numbers,
    texts, a loss. They distinguish one run from another and do not change in training.
    """

    @property
    def model(self) -> nn.Module: ...
    @property
    def optimizer(self) -> Optimizer | None: ...
    def step(self, x: Any, y: Tensor, *, context: Context = ...) -> StepMetrics: ...
    def end_epoch(self) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


Factory = Callable[..., Method]
_FACTORIES: dict[str, Factory] = {}


def register(name: str) -> Callable[[Factory], Factory]:
    """Return a decorator that registers a factory `f(model, **options) -> Method` by name and returns it unchanged."""

    def keep(factory: Factory) -> Factory:
        _FACTORIES[name] = factory
        return factory

    return keep


def names() -> list[str]:
    """Return the names of all registered methods, sorted."""
    return sorted(_FACTORIES)


def factory(name: str) -> Factory:
    """Return the factory registered under `name`; its signature has the options. ValueError for an unknown name,
    TypeError for what is not one."""
    if not isinstance(name, str):
        raise TypeError(f'a method is given by its name, such as "am-adam", given a {type(name).__name__}')
    if name not in _FACTORIES:
        raise unknown("method", name, _FACTORIES)
    return _FACTORIES[name]


Alternating = Literal[
    "am-adam",
    "am-sgd",
    "am-mem",
    "am-mem-fitted",
    "am-adam-printed",
    "am-sgd-printed",
    "am-mem-printed",
]
"""The names of methods that are an `AltMin`, for type checkers."""


@overload
def create(name: Alternating, model: nn.Module, **arguments: Any) -> "AltMin": ...
@overload
def create(name: str, model: nn.Module, **arguments: Any) -> Method: ...
def create(name: str, model: nn.Module, **arguments: Any) -> Method:
    """Return a method by name, for example `create("am-adam", model, lr=1e-3)`.

    ValueError for an unknown name or option, and for a number that is negative or not finite; TypeError for what is not
    a name or not a model.
    """
    make, accepted = factory(name), options(name)
    if not isinstance(model, nn.Module):
        raise TypeError(f"a method trains an nn.Module, given {shown(model)}")
    for option, value in arguments.items():
        if option not in accepted:
            raise unknown(f"option of method {name!r},", option, accepted)
        if isinstance(value, int | float):
            demand(name, option, float(value))
    return make(model, **arguments)


def options(name: str) -> list[str]:
    """Return the names of a method's options, in the order of its signature."""
    import inspect

    return [p for p in inspect.signature(factory(name)).parameters if p != "model"]
