"""The tasks on which default options are chosen: what is learned, by which net, for how long, how it is measured."""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import altmin
from reproduction.measurements import made_data as made
from reproduction.results import Setting


@dataclass(frozen=True)
class Task:
    """One task: `model()` makes a net from the global random state.

    data: the name of a data set of `altmin.data`, or a function of a split's name. evaluate: after how many batches to
    measure, the last being the length of the run. metric: "accuracy"; "error", the loss on other samples; or
    "prequential", the accuracy on a stream in which each sample is predicted before it is trained on, from its first
    sample on. tolerance: which difference from Adam matters; of an error, in its logarithm. measurements: so many, one
    every ten batches up to the evaluation point, of which the geometric mean is taken: at a constant rate the error of
    a small regression net rises and falls tenfold within a few hundred batches.
    """

    name: str
    model: Callable[[], nn.Module]
    data: str | Callable[[str], made.Samples]
    lr: float
    batch_size: int
    evaluate: tuple[int, ...]
    metric: Literal["accuracy", "error", "prequential"] = "accuracy"
    tolerance: float = 0.005
    loss: Callable[[Tensor, Tensor], Tensor] = field(default_factory=nn.CrossEntropyLoss)
    measurements: int = 1

    @property
    def settings(self) -> dict[str, Any]:
        """What a result depends on beside method, options and seed."""
        about = {"lr": self.lr, "batch_size": self.batch_size, "evaluate": list(self.evaluate)}
        return {**about, "metric": self.metric, "measurements": self.measurements}

    def measured_at(self, batch: int) -> list[int]:
        """The batches whose measurements an evaluation after `batch` batches takes the mean of.

        >>> Task("line", nn.Module, "mnist", 0.1, 64, (100,), measurements=3).measured_at(100)
        [80, 90, 100]
        """
        return list(range(batch - 10 * (self.measurements - 1), batch + 1, 10))

    def mean(self, values: Sequence[float | None]) -> float | None:
        """Over seeds: the arithmetic mean of accuracies, the geometric one of errors; None if a run diverged."""
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        return statistics.geometric_mean(known) if self.metric == "error" else statistics.fmean(known)

    def load(self, split: str, setting: Setting) -> made.Samples:
        if isinstance(self.data, str):
            return setting.samples(self.data, split)
        x, y = self.data(split)
        return x.to(setting.device), y.to(setting.device)

    def measure(self, model: nn.Module, samples: made.Samples) -> float:
        """The metric on samples that were not trained on."""
        x, y = samples
        with torch.no_grad():
            output = torch.cat([model(part) for part in x.split(1000)])
        if self.metric == "error":
            return float(self.loss(output, y))
        return float((output.argmax(1) == y).double().mean())


class Residual(nn.Module):
    """x + W relu(x) / sqrt(depth)."""

    def __init__(self, width: int, depth: int):
        super().__init__()
        self.linear, self.scale = nn.Linear(width, width), depth**-0.5

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale * self.linear(x.relu())


def residual_mlp(depth: int, width: int = 32) -> nn.Sequential:
    blocks = (Residual(width, depth) for _ in range(depth))
    return nn.Sequential(nn.Flatten(), nn.Linear(784, width), *blocks, nn.Linear(width, 10))


class Tokens(nn.Module):
    """One-hot tokens (samples, time, vocabulary) to vectors: an embedding of the token and one of its place."""

    def __init__(self, vocabulary: int, length: int, width: int):
        super().__init__()
        self.token = nn.Parameter(torch.randn(vocabulary, width))
        self.place = nn.Parameter(torch.randn(length, width))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.token + self.place


class TransformerBlock(nn.Module):
    """Causal self-attention and a two-layer net, each behind a layer norm and around a residual connection."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attention(self, x: Tensor) -> Tensor:
        split = self.qkv(x).unflatten(-1, (3, self.heads, -1))
        q, k, v = (part.transpose(-2, -3) for part in split.unbind(-3))
        score = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        future = torch.ones(score.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        return self.out((score.masked_fill(future, -math.inf).softmax(-1) @ v).transpose(-2, -3).flatten(-2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def transformer(blocks: int = 4, width: int = 64, heads: int = 4, vocabulary: int = 16, length: int = 32) -> nn.Module:
    middle = (TransformerBlock(width, heads) for _ in range(blocks))
    return nn.Sequential(Tokens(vocabulary, length, width), *middle, nn.LayerNorm(width), nn.Linear(width, vocabulary))


def over_time(output: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy over samples and places; output (samples, time, vocabulary), y (samples, time)."""
    return cross_entropy(output.flatten(0, 1), y.flatten())


def _plain(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """A fully connected net with torch's own initialisation."""
    layers: list[nn.Module] = []
    for m, n in itertools.pairwise(widths):
        layers += [nn.Linear(m, n), activation()]
    return nn.Sequential(*layers[:-1])


FACTOR = math.log(1.5)
"""A tolerance of half as much error again."""
_SQUARED: dict[str, Any] = {"metric": "error", "tolerance": FACTOR, "loss": nn.MSELoss(), "measurements": 25}
TASKS = {
    task.name: task
    for task in (
        Task(
            "mlp-2x100", lambda: altmin.models.mlp(784, (100,) * 2, 10), "mnist", 0.004, 200, (50, 250), tolerance=0.003
        ),
        Task("mlp-20x100", lambda: altmin.models.mlp(784, (100,) * 20, 10), "mnist", 0.001, 200, (250, 500)),
        Task("tanh-8x100", lambda: altmin.models.mlp(784, (100,) * 8, 10, nn.Tanh), "mnist", 0.001, 200, (50, 250)),
        Task("lenet5", altmin.models.lenet5, "mnist", 0.001, 200, (50, 250, 500), tolerance=0.003),
        Task("higgs", lambda: altmin.models.mlp(28, (300,), 2), "higgs", 0.001, 200, (1000, 5000)),
        Task("sine", lambda: _plain(1, 32, 32, 1, activation=nn.Tanh), made.sine, 0.003, 64, (1000, 4000), **_SQUARED),
        Task("friedman", lambda: _plain(10, 64, 64, 1), made.friedman, 0.003, 64, (500, 1500), **_SQUARED),
        Task("onehot", lambda: _plain(400, 64, 64, 2), made.onehot, 0.001, 64, (313, 939), tolerance=0.01),
        Task("stream", lambda: _plain(10, 32, 32, 2), made.drifting, 0.003, 1, (2000, 8000), "prequential", 0.01),
        Task("residual-32", lambda: residual_mlp(32), "fashion-mnist", 0.001, 128, (100, 391), tolerance=0.01),
        Task("residual-128", lambda: residual_mlp(128), "fashion-mnist", 0.001, 128, (100, 391), tolerance=0.01),
        Task("transformer", transformer, made.repeated, 0.001, 64, (100, 150, 250), "error", FACTOR, over_time),
    )
}
