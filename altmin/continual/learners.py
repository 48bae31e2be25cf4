"""What learns a sequence of tasks, by name: every method of `altmin.methods`, and some made for it."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from altmin import methods
from altmin.common.errors import demand, unknown
from altmin.continual.base import Learner
from altmin.continual.ewc import ewc
from altmin.continual.output_memory import Analytic, OutputRegression, Remembering
from altmin.continual.replay import replay
from altmin.continual.slda import StreamingLDA
from altmin.core.losses import LossFunction
from altmin.core.trainer import AltMin
from altmin.core.weights.local import LocalAdam
from altmin.core.weights.sums import FittedMemory
from altmin.methods.backprop import Backprop


class FallingRate(Learner):
    """A method whose optimizer has the rate lr / (1 + t / batches) after t steps: the control for what steps that
    shrink are worth without a memory. A co-activation memory that keeps everything grows with the samples seen, so what
    a mini-batch can change shrinks."""

    def __init__(self, method: Backprop, batches: float):
        demand("FallingRate", "batches", batches, above=True)
        super().__init__(method)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(method.optimizer, lambda t: 1 / (1 + t / batches))

    def step(self, x: Tensor, y: Tensor) -> object:
        metrics = super().step(x, y)
        self.schedule.step()
        return metrics


def falling_sgd(model: nn.Module, lr: float = 0.1, batches: float = 3.0) -> FallingRate:
    """SGD without momentum whose rate is lr / (1 + t / batches) after t steps."""
    demand("falling-sgd", "lr", lr)
    return FallingRate(Backprop(model, torch.optim.SGD(model.parameters(), lr)), batches)


def remembering(
    model: nn.Module,
    width: int = 1000,
    rate: float = 100.0,
    lr: float = 1e-4,
    damping: float = 10.0,
    ridge: float = 1e-3,
    seed: int = 0,
) -> Remembering:
    """AM-mem whose output is remembered too: hidden layers as by `learner`, and an output that is fitted to what they
    make of all samples when they come, beside `width` random features. ridge: the damping of that fit."""
    return Remembering(learner(model, lr, rate, damping), width, ridge, seed)


CONTINUAL: Mapping[str, Callable[..., Any]] = {
    "analytic": Analytic,
    "ewc": ewc,
    "falling-sgd": falling_sgd,
    "remembering": remembering,
    "replay": replay,
    "ridge": OutputRegression,
    "slda": StreamingLDA,
}


def names() -> list[str]:
    """The names of all learners, sorted."""
    return sorted([*methods.names(), *CONTINUAL])


def create(name: str, model: nn.Module, **options: Any) -> Any:
    """A learner by name, for example `create("replay", model, lr=1e-3)`. Raises ValueError for an unknown name or
    option."""
    if name in methods.names():
        return Learner(methods.create(name, model, **options))
    if name not in CONTINUAL:
        raise unknown("learner", name, names())
    accepted = [p for p in inspect.signature(CONTINUAL[name]).parameters if p != "model"]
    for option in options:
        if option not in accepted:
            raise unknown(f"option of learner {name!r},", option, accepted)
    return CONTINUAL[name](model, **options)


def sizes(learner: Any) -> dict[str, int]:
    """Bytes of the tensors that a learner keeps: "weights", the model's own; "moments", those of its optimizer;
    "memory", everything else. Single numbers are not counted."""
    moments = _bytes(learner.optimizer.state_dict()["state"] if learner.optimizer is not None else {})
    memory = _bytes(learner.state_dict()) - moments
    return {"weights": _bytes(dict(learner.model.named_parameters())), "moments": moments, "memory": memory}


def _bytes(state: Any) -> int:
    tensors = [t for t in pytree.tree_leaves(state) if isinstance(t, Tensor) and t.ndim]
    return sum(t.numel() * t.element_size() for t in tensors)


def learner(
    model: nn.Module,
    lr: float = 1e-4,
    rate: float = 30.0,
    damping: float = 10.0,
    loss: LossFunction | None = None,
) -> AltMin:
    """AM-mem for data that come in tasks, one after the other, and are not seen again.

    Hidden layers are fitted to A = sum a a^T and B = sum c a^T over all samples ever seen (forget = 1), by an exact
    solve a mini-batch; the output layer follows by Adam with a small lr, since no memory holds it. The default lr is
    for mini-batches of 200: change it in proportion to their size, or the output layer forgets. The other options
    are those of `FittedMemory`; the defaults are those of docs/continual.md.

    The result is an ordinary method: it takes `step(x, y)`, `altmin.fit` and `continual.run`, and is not told when a
    task ends. Its `state_dict` holds A and B - W A, from which a later run goes on.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> learner(model).weights.forget
    1.0
    """
    demand("learner", "lr", lr)
    rule = FittedMemory(1.0, damping, None, rate, LocalAdam(lr), steps=None)
    return AltMin(model, loss, weights=rule)
