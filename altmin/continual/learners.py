"""What learns a sequence of tasks, by name: every method of `altmin.methods`, and some made for it."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from torch import Tensor, nn
from torch.optim import Optimizer

from altmin import methods
from altmin.common.errors import unknown
from altmin.continual.ewc import ewc
from altmin.continual.falling_rate import falling_sgd
from altmin.continual.method import MethodLearner
from altmin.continual.replay import replay
from altmin.continual.slda import slda
from altmin.training.samples import Samples


class Learner(Protocol):
    """As a `Method`, with one call more: `end_task` comes after the last `end_epoch` of a task, with its samples.

    `state_dict` has all that it keeps from step to step, apart from the model's own.
    """

    @property
    def model(self) -> nn.Module: ...
    @property
    def optimizer(self) -> Optimizer | None: ...
    def step(self, x: Tensor, y: Tensor) -> Any: ...
    def end_epoch(self) -> None: ...
    def end_task(self, samples: Samples) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...


CONTINUAL: Mapping[str, Callable[..., Learner]] = {
    "ewc": ewc,
    "falling-sgd": falling_sgd,
    "replay": replay,
    "slda": slda,
}


def names() -> list[str]:
    """The names of all learners, sorted."""
    return sorted([*methods.names(), *CONTINUAL])


def create(name: str, model: nn.Module, **options: Any) -> Learner:
    """A learner by name, for example `create("replay", model, lr=1e-3)`. Raises ValueError for an unknown name or
    option."""
    if name in methods.names():
        return MethodLearner(methods.create(name, model, **options))
    if name not in CONTINUAL:
        raise unknown("learner", name, names())
    accepted = [p for p in inspect.signature(CONTINUAL[name]).parameters if p != "model"]
    for option in options:
        if option not in accepted:
            raise unknown(f"option of learner {name!r},", option, accepted)
    return CONTINUAL[name](model, **options)


def sizes(learner: Learner) -> dict[str, int]:
    """Bytes of the tensors that a learner keeps: "weights", the model's own; "moments", those of its optimizer;
    "memory", everything else. Single numbers are not counted."""
    moments = _bytes(learner.optimizer.state_dict()["state"] if learner.optimizer is not None else {})
    memory = _bytes(learner.state_dict()) - moments
    return {"weights": _bytes(dict(learner.model.named_parameters())), "moments": moments, "memory": memory}


def _bytes(state: Any) -> int:
    return sum(t.numel() * t.element_size() for t in _tensors(state) if t.ndim)


def _tensors(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, Mapping | list | tuple):
        for part in state.values() if isinstance(state, Mapping) else state:
            yield from _tensors(part)
