"""The output block remembered: the paper's A and B of its inputs and of one-hot targets, over all samples ever seen.

With the output's inputs f (a 1 appended) of all samples, and targets y, one for a sample's class and zero elsewhere,

    A = sum_t f_t f_t^T,   B = sum_t y_t f_t^T,   W = B (A + damping a I)^-1,   a the mean of A's diagonal:

ridge regression. Where the features f stay as they are, nothing depends on the order of the samples or on how they come
in mini-batches, and memories of several learners add up to that of all their samples. Recursive least squares, by which
analytic continual learning (ACIL, Zhuang et al. 2022) computes it, is the same W.
"""

from typing import Any

import torch
from torch import Tensor, nn

from altmin.common.errors import demand
from altmin.continual.base import Learner
from altmin.core.weights.sums import Sums
from altmin.methods import Method
from altmin.methods.backprop import Backprop, LossOnly
from altmin.training.samples import Samples


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
        """Updates the memory. The loss is that of the layer as it was set last."""
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


class Analytic(OutputRegression):
    """As `OutputRegression`, with layers that are trained by backprop with Adam in the first task, of which the last
    layer is then fitted to all samples once more, and stay as they are from then on."""

    def __init__(self, model: nn.Sequential, damping: float = 1e-3, lr: float = 1e-3):
        super().__init__(model, damping)
        demand("Analytic", "lr", lr)
        self.first: Backprop | None = Backprop(model, torch.optim.Adam(model.parameters(), lr))

    def step(self, x: Tensor, y: Tensor) -> LossOnly:
        return super().step(x, y) if self.first is None else self.first.step(x, y)

    def end_epoch(self) -> None:
        if self.first is None:
            super().end_epoch()

    @torch.no_grad()
    def end_task(self, samples: Samples) -> None:
        if self.first is None:
            return
        self.first = None
        for part in zip(*(t.split(1000) for t in samples), strict=True):
            self.memory.add_labels(self.features(part[0]), part[1])
        super().end_epoch()


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
    """A method that trains the layers before the output, and an output that is fitted to the memory of all samples, of
    what these layers make of them when they come and of fixed random features. Steps of the method use its own output
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
        own = {} if self.fitted is None else {"output": self.memory.state_dict()}
        return super().state_dict() | own
