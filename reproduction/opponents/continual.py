"""Learners of tasks in sequence, which `altmin.continual.create` finds by name: replay, elastic weight consolidation,
streaming discriminant analysis, features that are learnt in the first task alone, and steps that shrink."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from altmin.continual.learners import CONTINUAL, Learner, OutputRegression
from altmin.methods import create
from altmin.methods.backprop import Backprop, LossOnly
from altmin.training.samples import Samples

LEVELS = 255


class Reservoir:
    """At any time a uniform sample of the samples added, without replacement, in at most `budget` bytes (Vitter's
    algorithm R): the n-th sample takes the place of one of those kept with probability capacity / n.

    A sample is one byte for each of its values, on 256 equal levels from the smallest to the largest value of the first
    mini-batch, and one for its label. Random numbers are torch's.
    """

    def __init__(self, budget: int):
        self.budget, self.seen, self.capacity = budget, 0, 0

    def add(self, x: Tensor, y: Tensor) -> None:
        if not self.seen:
            self.capacity, self.dtype = self.budget // (x[0].numel() + 1), x.dtype
            self.low, self.high = float(x.min()), max(float(x.max()), float(x.min()) + 1e-12)
            self.inputs = torch.zeros(self.capacity, *x.shape[1:], dtype=torch.uint8, device=x.device)
            self.labels = torch.zeros(self.capacity, dtype=torch.uint8, device=x.device)
        slots = {slot: i for i in range(len(x)) if (slot := self._slot(self.seen + i)) < self.capacity}  # the last wins
        self.seen += len(x)
        to, of = (torch.tensor(list(rows), dtype=torch.int64, device=x.device) for rows in (slots, slots.values()))
        levels = (x[of] - self.low) * (LEVELS / (self.high - self.low))
        self.inputs[to] = levels.round().clamp(0, LEVELS).to(torch.uint8)
        self.labels[to] = y[of].to(torch.uint8)

    def draw(self, samples: int) -> Samples:
        """Return distinct samples from those kept; all of them if there are fewer."""
        rows = torch.randperm(min(self.seen, self.capacity))[:samples].to(self.labels.device)
        values = self.low + self.inputs[rows].to(self.dtype) * ((self.high - self.low) / LEVELS)
        return values, self.labels[rows].to(torch.int64)

    def _slot(self, n: int) -> int:
        """Return where the sample with number n, from 0, goes; it is not kept if that is the capacity or more."""
        return n if n < self.capacity else int(torch.randint(n + 1, ()))


class Replay(Learner):
    """Steps of a method on a mini-batch and as many samples drawn from a buffer of `budget` bytes; the default is what
    the co-activation memory of 784-100-100-10 takes."""

    def __init__(self, model: nn.Module, budget: int = 2_860_104, lr: float = 1e-3, method: str = "adam"):
        super().__init__(create(method, model, lr=lr))
        self.buffer = Reservoir(budget)

    def step(self, x: Tensor, y: Tensor) -> Any:
        drawn = self.buffer.draw(len(x)) if self.buffer.seen else (x[:0], y[:0])
        metrics = super().step(torch.cat([x, drawn[0]]), torch.cat([y, drawn[1]]))
        self.buffer.add(x, y)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"buffer": [self.buffer.inputs, self.buffer.labels]}


def fisher(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Return the diagonal of the empirical Fisher information: of every trained parameter, by name, the mean over
    samples of the squared derivative of log p(y | x)."""
    theta = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def log_likelihood(theta: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return -cross_entropy(functional_call(model, theta, (x[None],)), y[None])

    squares = {name: torch.zeros_like(p) for name, p in theta.items()}
    for xs, ys in zip(x.split(100), y.split(100), strict=True):
        for name, gradients in vmap(grad(log_likelihood), in_dims=(None, 0, 0))(theta, xs, ys).items():
            squares[name] += gradients.square().sum(0)
    return {name: total / len(x) for name, total in squares.items()}


class ElasticWeights(Learner):
    """Adam on loss + strength / 2 sum_i F_i (theta_i - theta*_i)^2, with theta* the weights after the last task and F
    the sum over tasks of their Fisher information, from the first `samples` of each: one anchor, as of Huszár (2018).

    Kirkpatrick et al. 2017, "Overcoming catastrophic forgetting in neural networks"."""

    def __init__(self, model: nn.Module, strength: float = 1000.0, lr: float = 1e-3, samples: int = 2000):
        super().__init__(Backprop(model, torch.optim.Adam(model.parameters(), lr)))
        self.strength, self.samples = strength, samples
        self.importance: dict[str, Tensor] = {}
        self.anchor: dict[str, Tensor] = {}

    def step(self, x: Tensor, y: Tensor) -> LossOnly:
        """Take one step. The loss that it reports is without the penalty."""
        loss = self.method.differentiate(x, y)
        with torch.no_grad():
            for name, p in self.model.named_parameters():
                if name in self.importance:
                    p.grad.add_(self.importance[name] * (p - self.anchor[name]), alpha=self.strength)  # type: ignore[union-attr]
        self.method.update()
        return LossOnly(loss)

    def end_task(self, samples: Samples) -> None:
        new = fisher(self.model, *(part[: self.samples] for part in samples))
        self.importance = {name: value + self.importance.get(name, 0.0) for name, value in new.items()}
        self.anchor = {name: p.detach().clone() for name, p in self.model.named_parameters() if p.requires_grad}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"importance": self.importance, "anchor": self.anchor}


class StreamingLDA:
    """Sets the last layer to the discriminant of its inputs z at the end of an epoch; other layers stay.

    With mu_k the mean of class k, S the scatter within classes and

        C = (1 - shrinkage) S / n + shrinkage tr(S / n) / d I,

    a sample is put into the class with the largest mu_k^T C^-1 z - mu_k^T C^-1 mu_k / 2.

    Hayes and Kanan 2020, "Lifelong Machine Learning with Deep Streaming Linear Discriminant Analysis"."""

    optimizer = None

    def __init__(self, model: nn.Sequential, shrinkage: float = 1e-2):
        self.model, self.shrinkage, self.features, self.head = model, shrinkage, model[:-1], model[-1]
        W = self.head.get_parameter("weight")
        classes, inputs = W.shape
        self.counts, self.means, self.scatter = (
            W.new_zeros(classes),
            W.new_zeros(W.shape),
            W.new_zeros(inputs, inputs),
        )

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor) -> LossOnly:
        """Update counts, means and scatter. With n_k samples of class k so far and m_k new ones of mean v_k, S grows by
        their scatter about v_k and by n_k m_k / (n_k + m_k) (v_k - mu_k) (v_k - mu_k)^T."""
        z = self.features(x)
        loss = cross_entropy(self.head(z), y)
        member = nn.functional.one_hot(y, len(self.counts)).to(z.dtype)
        new = member.sum(0)
        total = self.counts + new
        means = member.mT @ z / new.clamp(min=1)[:, None]
        within, between = z - means[y], means - self.means
        weight = self.counts * new / total.clamp(min=1)
        self.scatter += within.mT @ within + (between * weight[:, None]).mT @ between
        self.means += between * (new / total.clamp(min=1))[:, None]
        self.counts = total
        return LossOnly(loss)

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Put the discriminant into the last layer; a class not seen yet gets the least output of all."""
        C = self.scatter.double() / self.counts.double().sum()
        ridge = self.shrinkage * C.diagonal().mean()
        C = (1 - self.shrinkage) * C + ridge * torch.eye(len(C), dtype=C.dtype, device=C.device)
        weight = torch.linalg.solve(C, self.means.double().mT).mT
        bias = -(weight * self.means).sum(1) / 2
        bias[self.counts == 0] = torch.finfo(self.means.dtype).min
        self.head.get_parameter("weight").copy_(weight)
        self.head.get_parameter("bias").copy_(bias)

    def end_task(self, samples: Samples) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"counts": self.counts, "means": self.means, "scatter": self.scatter}


class Analytic(OutputRegression):
    """As `OutputRegression`, with layers that are trained by backprop with Adam in the first task, and stay as they are
    from then on. Recursive least squares, by which ACIL (Zhuang et al. 2022) computes it, is the same fit."""

    def __init__(self, model: nn.Sequential, damping: float = 1e-3, lr: float = 1e-3):
        super().__init__(model, damping)
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
        for x, y in zip(*(t.split(1000) for t in samples), strict=True):
            self.memory.add_labels(self.features(x), y)
        super().end_epoch()


class FallingRate(Learner):
    """SGD without momentum whose rate is lr / (1 + t / batches) after t steps: what steps that shrink are worth without
    a memory. A co-activation memory that keeps everything grows, so what a mini-batch can change shrinks."""

    def __init__(self, model: nn.Module, lr: float = 0.1, batches: float = 3.0):
        super().__init__(Backprop(model, torch.optim.SGD(model.parameters(), lr)))
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.method.optimizer, lambda t: 1 / (1 + t / batches))

    def step(self, x: Tensor, y: Tensor) -> object:
        metrics = super().step(x, y)
        self.schedule.step()
        return metrics


CONTINUAL.update(
    {"analytic": Analytic, "ewc": ElasticWeights, "falling-sgd": FallingRate, "replay": Replay, "slda": StreamingLDA}
)
