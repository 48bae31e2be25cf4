"""`AltMin`: encode, codes, weights, mu (Algorithm 1)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from altmin.chain import Chain, Theta, split
from altmin.codes.choose import choose
from altmin.codes.gradient import Local, Trace, encode
from altmin.codes.linesearch import Above, Doubts, FitAbove, LossAbove, Mu
from altmin.errors import Diverged
from altmin.fusing import fusible
from altmin.objective import CrossEntropy, LossFunction, adapt
from altmin.penalty import Penalty
from altmin.weights.local import LocalAdam, Totals


class CodeSolver(Protocol):
    """Moves the codes of a mini-batch; returns every block's local problem."""

    def __call__(self, chain: Chain, theta: Theta, trace: Trace, top: LossAbove, mu: Mu) -> list[Local]: ...


class WeightRule(Protocol):
    """Fits each block's weights to its local problem. `totals` are the sums of the problems' values."""

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...
    def bind(self, chain: Chain, blocks: Sequence[int]) -> None: ...
    def update(self, problems: list[Local], totals: Totals, mu: Mu) -> None: ...
    def gather(self, problems: Sequence[Local], totals: Totals, mu: Mu) -> None: ...
    def apply(self, mu: Mu) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


Codes = CodeSolver | Literal["gradient", "discrete", "straight-through", "parallel", "sequential"] | float | None


@dataclass(frozen=True)
class Metrics:
    """What one step saw, before the weights moved.

    loss: of the encoded batch, a tensor without dimensions; it is also f before the codes moved. penalty: mu.
    objective: f(W, C; mu) once they had. A code that `DiscreteCodes` asks for a side of its threshold enters with its
    hinge in place of its squared residual.
    """

    loss: Tensor
    penalty: float
    objective: float
    _squares: Sequence[float]
    _problems: Sequence[tuple[Above, int]]
    _scales: Sequence[float]

    @property
    def residuals(self) -> list[float]:
        """Root mean square of c_l - W_l s(c_{l-1}) after the codes moved, for each hidden block."""
        return [(total / size) ** 0.5 for total, (_, size) in zip(self._squares, self._problems, strict=False)]

    @property
    def movements(self) -> list[float]:
        """Root mean square of c_l's offset from its encoded value, for each hidden block."""
        return [
            (float(above.moved.sum()) / size) ** 0.5 / scale
            for (above, size), scale in zip(self._problems, self._scales, strict=False)
            if isinstance(above, FitAbove)
        ]


class Attempt(NamedTuple):
    """Codes that have moved: the problems they leave, the losses before, and what tells whether all is well."""

    problems: list[Local]
    losses: Tensor
    first_code: Tensor
    doubtful: Tensor | None
    traces: list[Any]

    def sums(self) -> Tensor:
        """Of each problem's values and, last, of the losses."""
        values = [*(p.at.values for p in self.problems), self.losses]
        if any(v.shape != values[0].shape for v in values):
            return torch.stack([p.above.weigh(p.at.values).sum() for p in self.problems] + [self.losses.sum()])
        spared = [p.above.spared for p in self.problems]
        if len(values) <= 8:
            return _few_sums(values, [*spared, None])
        if any(part is not None for part in spared):
            ones = torch.ones_like(self.losses)
            parts = torch.stack([*(ones if part is None else part for part in spared), ones])
            return _weighted_sums(torch.stack(values), parts)
        return torch.stack(values).sum(1)

    def read(self, sums: Tensor) -> tuple[list[float], list[float], float, bool]:
        """The problems' totals and scales, the sum of the first code, and whether a step was taken that should have
        been halved: all in one go, since the processor waits for a GPU each time."""
        scales, blocks = [p.above.scale for p in self.problems], len(self.problems)
        unknown = [scale for scale in scales if isinstance(scale, Tensor)]
        rest = [self.first_code, *unknown, *([] if self.doubtful is None else [self.doubtful.any()])]
        if sums.is_cuda:
            numbers = torch.cat([sums, torch.stack([each.to(sums.dtype) for each in rest])]).tolist()
        else:
            numbers = [*sums.tolist(), *(each.item() for each in rest)]
        found = iter(numbers[len(sums) + 1 :])
        known = [next(found) if isinstance(scale, Tensor) else scale for scale in scales]
        return numbers[:blocks], known, numbers[len(sums)], bool(next(found, False))


@fusible
def _few_sums(values: list[Tensor], spared: list[Tensor | None]) -> Tensor:
    return torch.stack([v if s is None else s.square() * v for v, s in zip(values, spared, strict=True)]).sum(1)


@fusible
def _weighted_sums(values: Tensor, parts: Tensor) -> Tensor:
    return (parts.square() * values).sum(1)


@fusible
def _sum(values: Tensor) -> Tensor:
    return values.sum()


class AltMin:
    """Trains an `nn.Sequential` in place, one mini-batch at a time, without backpropagation.

    loss: nn.CrossEntropyLoss(), nn.MSELoss() or any callable (output, y) -> scalar, the mean over the batch. codes,
    weights, penalty: how codes move, how weights follow, and what distance between them costs; a number for codes is
    a fixed step, a name one of "gradient", "discrete", "straight-through" and, for codes in time, "parallel" and
    "sequential"; a number for the penalty is a constant mu.

    >>> torch.manual_seed(0) and None
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
    >>> am = AltMin(model, weights=LocalAdam(lr=0.05))
    >>> x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> y = torch.tensor([0, 1, 1, 0])
    >>> for _ in range(100):
    ...     metrics = am.step(x, y)
    >>> model(x).argmax(1).tolist()
    [0, 1, 1, 0]
    """

    def __init__(
        self,
        model: nn.Module,
        loss: LossFunction | None = None,
        codes: Codes = None,
        weights: WeightRule | None = None,
        penalty: Penalty | float | None = None,
    ):
        self.model = model
        self.chain = split(model)
        self.loss = adapt(loss or nn.CrossEntropyLoss())
        self.codes: CodeSolver = choose(codes, self.chain)
        self.weights: WeightRule = weights or LocalAdam()
        if isinstance(penalty, int | float):
            penalty = Penalty(penalty, increment=0.0, maximum=None)
        self.penalty = penalty or Penalty()
        self.theta = self.chain.parameters()
        self.weights.bind(self.chain, range(len(self.chain)))

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """What a torch learning-rate scheduler attaches to."""
        return self.weights.optimizer

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor) -> Metrics:
        """One mini-batch: encode, update codes, update weights, update mu."""
        problems, totals, metrics = self._set_codes(x, y)
        self.weights.update(problems, totals, self.penalty.value)
        self.penalty.step()
        return metrics

    @torch.no_grad()
    def gather(self, x: Tensor, y: Tensor) -> Metrics:
        """A part of a mini-batch too large to hold: as `step`, but weights and mu wait for `apply`."""
        problems, totals, metrics = self._set_codes(x, y)
        self.weights.gather(problems, totals, self.penalty.value)
        return metrics

    @torch.no_grad()
    def apply(self) -> None:
        """The weight step of everything gathered since the last one."""
        self.weights.apply(self.penalty.value)
        self.penalty.step()

    def end_epoch(self) -> None:
        """Closes a pass over the data: mu grows."""
        self.penalty.end_epoch()

    def state_dict(self) -> dict[str, Any]:
        """Everything but the model's own parameters, which are in `model.state_dict()`."""
        return {"weights": self.weights.state_dict(), "penalty": self.penalty.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        missing = {"weights", "penalty"} - set(state)
        if missing:
            raise ValueError(f"this is not the state of an AltMin: it lacks {', '.join(sorted(missing))}")
        self.weights.load_state_dict(state["weights"])
        self.penalty.load_state_dict(state["penalty"])

    def _set_codes(self, x: Tensor, y: Tensor) -> tuple[list[Local], list[float], Metrics]:
        """Encodes a batch and moves its codes; nothing of the model changes unless all is finite."""
        check(x, y, self.theta[0][0])
        mu = self.penalty.value
        found = self.attempt(x, y, mu, Doubts(wait=not x.is_cuda))
        sums = found.sums()
        totals, scales, first_code, doubtful = found.read(sums)
        if doubtful:
            found = self.attempt(x, y, mu, Doubts())  # who waits for each answer has no doubts
            sums = found.sums()
            totals, scales, first_code, _ = found.read(sums)
        # offsets may be magnified; f is not
        true = [total / scale / scale for total, scale in zip(totals, scales, strict=True)]
        objective = (true[-1] + mu * sum(true[:-1])) / x.shape[0]
        if not math.isfinite(objective + 0 * first_code):
            raise self._not_finite(x, y, found.problems)
        for m, saved in found.traces:
            m.commit(saved)
        hidden = [(p.above, p.at.force.numel()) for p in found.problems[:-1]]
        return found.problems, totals, Metrics(sums[-1] / x.shape[0], mu, objective, true, hidden, scales)

    def attempt(self, x: Tensor, y: Tensor, mu: Mu, doubts: Doubts) -> "Attempt":
        """Encodes a batch and moves its codes, without a look at what came of it."""
        trace = encode(self.chain, self.theta, x)
        first_code = _sum(trace.values[0])
        traces = [t for block, state in zip(self.chain, trace.states, strict=True) for t in block.traces(state)]
        top = LossAbove(self.loss, trace.values[-1], y, mu, doubts)
        problems = self.codes(self.chain, self.theta, trace, top, mu)
        return Attempt(problems, top.start.values, first_code, doubts.found(), traces)

    def _not_finite(self, x: Tensor, y: Tensor, problems: Sequence[Local]) -> Exception:
        if not bool(x.isfinite().all()):
            return ValueError("the input holds NaN or infinite values; clean it before training (nothing was changed)")
        values = encode(self.chain, self.theta, x).values
        if isinstance(self.loss, CrossEntropy):
            self.loss.check(values[-1], y)
        forward = [value.isfinite().all() for value in values]
        backward = [problem.at.values.isfinite().all() for problem in problems[::-1]]
        for l, fine in [*enumerate(forward), *zip(reversed(range(len(problems))), backward, strict=True)]:
            if not bool(fine):
                return Diverged(f"block {l} ({self.chain.blocks[l]})")
        return Diverged("the objective")


def check(x: Tensor, y: Tensor, first: Tensor) -> None:
    """Complains of a mini-batch that a model, whose first parameter this is, cannot take."""
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        raise TypeError(f"step takes tensors, given {type(x).__name__} and {type(y).__name__}; use torch.as_tensor")
    if x.dtype != first.dtype or x.device != first.device:
        raise ValueError(
            f"the model is {first.dtype} on {first.device}, the input {x.dtype} on {x.device}; "
            f"convert it with x.to({str(first.device)!r}, {first.dtype})"
        )
    if y.device != x.device:
        raise ValueError(f"the input is on {x.device}, the targets on {y.device}; move one with .to(...)")
    if x.ndim < 2 or len(x) == 0:
        raise ValueError(f"a mini-batch has at least one sample and one feature, given an input of {tuple(x.shape)}")
    if y.ndim == 0 or len(x) != len(y):
        raise ValueError(f"as many targets as samples are needed: {len(x)} samples, targets of {tuple(y.shape)}")
