"""Learners of tasks in sequence: a co-activation memory of all samples, and an output fitted to all samples.
With the output's inputs f (a 1 appended) of all samples, and targets y, one for a sample's class and zero elsewhere,

    A = sum_t f_t f_t^T,   B = sum_t y_t f_t^T,   W = B (A + damping a I)^-1,   a the mean of A's diagonal:

ridge regression. Where the features f stay as they are, nothing depends on the order of the samples or on how they come
in mini-batches.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from altmin import methods
from altmin.common.errors import demand, unknown
from altmin.core.losses import LossFunction
from altmin.core.trainer import AltMin
from altmin.core.weights.local import LocalAdam
from altmin.core.weights.sums import FittedMemory, Sums
from altmin.methods import Method
from altmin.methods.base import LossOnly
from altmin.methods.wrapper import Wrapper
from altmin.training.samples import Samples


class Learner(Wrapper):
    """A `Method` around `method` with one more call: `end_task(samples)`, after the last `end_epoch` of a task. Here it
    changes nothing: the method keeps its state, such as its co-activation memory."""

    def step(self, x: Tensor, y: Tensor) -> Any:
        return self.method.step(x, y)

    def end_task(self, samples: Samples) -> None:
        pass


class OutputMemory(Sums):
    """A and B of the features f and of one-hot labels y, by which a layer is fitted."""

    def __init__(self, head: nn.Linear):
        super().__init__(head.in_features, head.out_features, True, head.weight.device, head.weight.dtype)

    def add_labels(self, f: Tensor, y: Tensor) -> None:
        """Add features (samples, features) and labels."""
        self.add(f, nn.functional.one_hot(y, len(self.B)).to(f.dtype))

    def fit(self, head: nn.Linear, damping: float) -> None:
        """Set a layer to W."""
        W = self.solve(damping * self.A.diagonal().double().mean())
        head.weight.copy_(W[:, :-1])
        head.bias.copy_(W[:, -1])

    def state_dict(self) -> dict[str, Tensor]:
        """Return B, and of the symmetric A the upper triangle."""
        return {"A": self.A[torch.ones_like(self.A, dtype=torch.bool).triu()], "B": self.B}


def head_of(model: nn.Module, what: str) -> nn.Linear:
    """The last layer of a Sequential. ValueError if it is none with a bias."""
    last = model[-1] if isinstance(model, nn.Sequential) and len(model) else None
    if not isinstance(last, nn.Linear) or last.bias is None:
        raise ValueError(f"{what} fits the last layer of an nn.Sequential; end it with an nn.Linear that has a bias")
    return last


class OutputRegression:
    """Fits the last layer of `model` to its memory; the layers before it stay as they are. The layer is set at the end
    of an epoch. damping: relative to the mean square of a feature."""

    optimizer = None

    def __init__(self, model: nn.Sequential, damping: float = 1e-3):
        demand(type(self).__name__, "damping", damping, above=True)
        self.model, self.damping, self.head = model, damping, head_of(model, type(self).__name__)
        self.features = model[:-1]
        self.memory = OutputMemory(self.head)

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor) -> LossOnly:
        """Update the memory. The loss is that of the layer as it was set last."""
        f = self.features(x)
        self.memory.add_labels(f, y)
        return LossOnly(nn.functional.cross_entropy(self.head(f), y))

    @torch.no_grad()
    def end_epoch(self) -> None:
        self.memory.fit(self.head, self.damping)

    def end_task(self, samples: Samples) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return self.memory.state_dict()


class Beside(nn.Module):
    """Features that are learnt, and fixed random ones of the same input: rectified, with weights that only the seed
    determines."""

    random: Tensor

    def __init__(self, learnt: nn.Module, x: Tensor, width: int, seed: int):
        super().__init__()
        self.learnt, inputs = learnt, x[0].numel()
        draw = torch.randn(inputs, width, generator=torch.Generator().manual_seed(seed))
        self.register_buffer("random", (draw * (2 / inputs) ** 0.5).to(x), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.learnt(x).flatten(1), torch.relu(x.flatten(1) @ self.random)], 1)


class Remembering(Learner):
    """A method that trains the layers before the output, and an output that is fitted to the memory of all samples: of
    their features by these layers when they come, and of fixed random features. Steps of the method use its own output
    layer.

    width: the number of random features. seed: of their weights. `model` is the method's, until the first step; then
    that with the features and the fitted output.
    """

    def __init__(self, method: Method, width: int = 700, damping: float = 1e-3, seed: int = 0):
        demand("Remembering", "width", width, low=1, whole=True)
        demand("Remembering", "damping", damping, above=True)
        super().__init__(method)
        head_of(method.model, "Remembering")
        self.width, self.damping, self.seed = width, damping, seed
        self.fitted: nn.Sequential | None = None

    @property
    def model(self) -> nn.Module:
        return self.method.model if self.fitted is None else self.fitted

    def step(self, x: Tensor, y: Tensor) -> Any:
        metrics = self.method.step(x, y)
        with torch.no_grad():
            if self.fitted is None:
                features = Beside(self.method.model[:-1], x, self.width, self.seed)
                inputs, outputs = features(x[:1]).shape[1], head_of(self.method.model, "Remembering").out_features
                head = nn.Linear(inputs, outputs).to(x.device, x.dtype)
                nn.init.zeros_(head.weight)
                self.fitted, self.head = nn.Sequential(features, head), head
                self.memory = OutputMemory(head)
            self.memory.add_labels(self.fitted[0](x), y)
        return metrics

    @torch.no_grad()
    def end_epoch(self) -> None:
        self.method.end_epoch()
        if self.fitted is not None:
            self.memory.fit(self.head, self.damping)

    def state_dict(self) -> dict[str, Any]:
        output = {} if self.fitted is None else {"output": self.memory.state_dict()}
        return super().state_dict() | output


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

    The result is an ordinary method: it takes `step(x, y)`, `altmin.fit` and `continual.run`, and has no call at the
    end of a task. Its `state_dict` holds A and B - W A, from which a later run goes on.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> learner(model).weights.forget
    1.0
    """
    demand("learner", "lr", lr)
    rule = FittedMemory(1.0, damping, None, rate, LocalAdam(lr), steps=None)
    return AltMin(model, loss, weights=rule)


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


CONTINUAL: dict[str, Callable[..., Any]] = {"remembering": remembering, "ridge": OutputRegression}
"""By name, beside the methods of `altmin.methods`."""


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
