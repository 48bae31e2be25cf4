"""`AltMin`: owns the state of a run, checks its input, and calls the step (Algorithm 1)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from altmin.calculus import Number, Params
from altmin.calculus.ranks import Sums, of_all, sharing
from altmin.calculus.sample_weight import check_weights, multiplied, samples, weighing
from altmin.common.errors import Diverged, demand_unclaimed
from altmin.common.state import demand_entries, demand_separate
from altmin.core.chain import Chain, split
from altmin.core.codes.above import Residual
from altmin.core.codes.choose import choose
from altmin.core.codes.gradient import GradientCodes, encode
from altmin.core.losses import CrossEntropy, LossFunction, adapt
from altmin.core.penalty import Penalty
from altmin.core.reweighted import Weighted, of_batch
from altmin.core.step import CodeSolver, Moved, move_codes, verdict
from altmin.core.weights.local import LocalAdam


class WeightRule(Protocol):
    """Fits each block's weights to its local problem.

    `bind` takes charge of blocks of a chain. `measure` is what a rule needs of one block's residual, and changes
    nothing; `update` moves the weights by what was measured of every block. A mini-batch in parts is given to `gather`,
    and the weights move in `apply`, which a call of `prepare` may precede, to see whether they can.
    """

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...
    def bind(self, chain: Chain, blocks: Sequence[int]) -> None: ...
    def measure(self, l: int, p: Params, residual: Residual) -> Any: ...
    def update(self, found: Sequence[Any]) -> None: ...
    def gather(self, found: Sequence[Any], samples: int) -> None: ...
    def prepare(self) -> None: ...
    def apply(self) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


Codes = CodeSolver | Literal["gradient", "discrete", "straight-through", "parallel", "sequential"] | float | None


@dataclass(frozen=True)
class Metrics:
    """What one step saw, before the weights moved.

    loss: of the encoded batch, a tensor without dimensions; it is also f before the codes moved. penalty: mu.
    objective: f(W, C; mu) once they had, per sample. residuals: root mean square of c_l - W_l s(c_{l-1}) after the
    codes moved, for each hidden block. movements: root mean square of c_l's offset from its encoded value.
    """

    loss: Tensor
    penalty: float
    _objective: Number
    _costs: Sequence[Any]
    _moved: Sequence[Any]
    _sizes: Sequence[float]

    @property
    def objective(self) -> float:
        return float(self._objective)

    @property
    def residuals(self) -> list[float]:
        return [(float(cost) / size) ** 0.5 for cost, size in zip(self._costs, self._sizes, strict=False)]

    @property
    def movements(self) -> list[float]:
        return [(float(moved) / size) ** 0.5 for moved, size in zip(self._moved, self._sizes, strict=False)]


class AltMin:
    """Trains a model in place, one mini-batch at a time, without backpropagation.

    loss: nn.CrossEntropyLoss(), nn.MSELoss() or any callable (output, y) -> scalar, the mean over the batch. codes,
    weights, penalty: how codes move, how weights follow, and what distance between them costs; a number for codes is
    a fixed step, a name one of "gradient", "discrete", "straight-through" and, for codes in time, "parallel" and
    "sequential"; a number for the penalty is a constant mu. at: after which modules to cut the model, see `split`.

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
        at: Collection[str] | None = None,
    ):
        self.model = model
        self.chain = split(model, at)
        self.at = None if at is None else tuple(at)
        check_model(model)
        self.loss = adapt(nn.CrossEntropyLoss() if loss is None else loss)
        self.codes: CodeSolver = choose(codes, self.chain)
        self.weights: WeightRule = LocalAdam() if weights is None else weights
        if not hasattr(self.weights, "bind") or isinstance(weights, type):
            raise TypeError(f"weights is a weight rule, such as altmin.LocalAdam(lr=0.001), given {weights!r}")
        if isinstance(penalty, int | float):
            penalty = Penalty(penalty, increment=0.0, maximum=None)
        self.penalty = Penalty() if penalty is None else penalty
        if not isinstance(self.penalty, Penalty):
            raise TypeError(f"penalty is a number or an altmin.Penalty(...), given {penalty!r}")
        demand_unclaimed(self.penalty, "penalty")
        self.theta = self.chain.parameters()
        demand_separate(model.named_parameters())
        self.weights.bind(self.chain, range(len(self.chain)))
        self.penalty.claimed = True

    def __repr__(self) -> str:
        return f"AltMin(loss={self.loss!r}, codes={self.codes!r}, weights={self.weights!r}, penalty={self.penalty!r})"

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """What a torch learning-rate scheduler attaches to."""
        return self.weights.optimizer

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> Metrics:
        """One mini-batch: encode, update codes, update weights, update mu. Returns what it saw.

        sample_weight: one for each sample; a sample of weight w counts as one that stands w times in the mini-batch.
        ValueError if the batch does not fit the model, `Diverged` if loss or objective are not finite; then nothing of
        the model has changed.
        """
        moved, metrics = self._move_codes(x, y, sample_weight)
        self.weights.update(moved.found)
        self._commit(moved)
        self.penalty.step()
        return metrics

    @torch.no_grad()
    def gather(self, x: Tensor, y: Tensor) -> Metrics:
        """A part of a mini-batch too large to hold: as `step`, but weights and mu wait for `apply`."""
        moved, metrics = self._move_codes(x, y)
        self.weights.gather(moved.found, of_all(len(x)))
        self._commit(moved)
        return metrics

    @torch.no_grad()
    def apply(self) -> None:
        """The weight step of everything gathered since the last one."""
        self.weights.apply()
        self.penalty.step()

    def why_not_captured(self) -> str:
        """Why a step cannot be captured as a CUDA graph, which leaves no decision to the processor; empty if it can."""
        for part in (self.codes, self.weights):
            reason: str = part.why_not_captured() if hasattr(part, "why_not_captured") else _decides(part)
            if reason:
                return reason
        for module in self.model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training and module.momentum is None:
                return "its batch norm averages over all batches (momentum=None), which are counted on the processor"
        return ""

    def end_epoch(self) -> None:
        """Closes a pass over the data: mu grows."""
        self.penalty.end_epoch()

    def state_dict(self) -> dict[str, Any]:
        """Everything but the model's own parameters, which are in `model.state_dict()`."""
        return {"weights": self.weights.state_dict(), "penalty": self.penalty.state_dict()}

    def check_state(self, state: Any) -> None:
        """ValueError unless `load_state_dict` can take the state: then it takes all of it."""
        demand_entries(state, ("weights", "penalty"), "an AltMin")
        self.penalty.check_state(state["penalty"])
        if hasattr(self.weights, "check_state"):  # a rule of one's own may have none
            self.weights.check_state(state["weights"])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from another's `state_dict`; one that does not fit is a ValueError, and nothing changes."""
        self.check_state(state)
        self.weights.load_state_dict(state["weights"])
        self.penalty.load_state_dict(state["penalty"])

    def _move_codes(self, x: Tensor, y: Tensor, w: Tensor | None = None) -> tuple[Moved, Metrics]:
        """Encodes a batch and moves its codes; nothing of the model changes. w: weights of its samples. `Diverged` or
        ValueError unless all is finite."""
        self.chain.demand_unchanged()
        check(x, y, self.theta[0][0], integers=self.chain.blocks[0].takes_integers)
        loss = self.loss
        if w is not None:
            w = self._check_weights(w, x)
            loss = Weighted(self.loss, w)
        sizes: list[float] = []
        sums = Sums()

        def measure(l: int, residual: Residual) -> Any:
            if w is not None:
                residual = _of_all_copies(residual, w)
            sizes.append(
                of_all(residual.delta.numel()) * (1 if w is None else samples(residual.delta) / of_all(len(w)))
            )
            found = self.weights.measure(l, self.theta[l], residual)
            return found if isinstance(found, Residual) else sums.add(found)

        mu = self.penalty.value
        with weighing(w):
            moved = move_codes(self.chain, self.theta, self.codes, of_batch(loss), x, y, mu, measure)
            moved = moved._replace(checked=sums.finish(moved.checked)[0])
        if not bool(verdict(moved)):
            raise self._not_finite(x, y)
        return moved, Metrics(moved.loss, mu, moved.objective, moved.costs[:-1], moved.moved[:-1], sizes[:0:-1])

    def _check_weights(self, w: Any, x: Tensor) -> Tensor:
        """The weights as they are used. ValueError where samples do not stand by themselves, so that none can be
        weighed."""
        mixing = [m for m in self.model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training]
        if mixing or type(self.codes) is not GradientCodes:
            what = f"{type(mixing[0]).__name__} mixes them" if mixing else f"{type(self.codes).__name__} has no weights"
            raise ValueError(
                f"sample weights need samples that are trained by themselves, and {what}; repeat samples instead of "
                "weighing them"
            )
        return check_weights(w, x)

    @staticmethod
    def _commit(moved: Moved) -> None:
        """What batch norm keeps of a mini-batch, once its step is known to be good."""
        for m, saved in moved.statistics:
            m.commit(saved)

    def _not_finite(self, x: Tensor, y: Tensor) -> Exception:
        """The error for a step that left the finite numbers, with the place where it did."""
        for name, given in (("input holds", x), ("targets hold", y)):
            if not bool(given.isfinite().all()):
                return ValueError(
                    f"the {name} NaN or infinite values; clean them before training (nothing was changed)"
                )
        first = self.chain.blocks[0]
        if wrong := first.core.maps[0].misfit(x):
            return ValueError(f"block 0 ({first}) cannot take its input: {wrong} (nothing was changed)")
        with sharing(None):  # other ranks may have found their own error
            values = encode(self.chain, self.theta, x).values
        if isinstance(self.loss, CrossEntropy):
            self.loss.check(values[-1], y)
        for l, value in enumerate(values):
            if not bool(value.isfinite().all()):
                return Diverged(f"block {l} ({self.chain.blocks[l]})")
        return Diverged("the objective")


def _of_all_copies(residual: Residual, w: Tensor) -> Residual:
    """The residual of w_t copies of each sample, from that of one."""
    return residual._replace(
        delta=multiplied(residual.delta, w), after=lambda change: multiplied(residual.after(change), w), grads=None
    )


def check_model(model: nn.Module) -> None:
    """TypeError or ValueError for parameters that cannot be trained."""
    for name, p in model.named_parameters():
        if p.is_meta:
            raise ValueError(f"{name} is on the meta device and holds no numbers; fill it first (model.to_empty(...))")
        if p.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"{name} is {p.dtype}; altmin trains float32 and float64 and rounds products by itself: use "
                'model.float(), and altmin.runners.precision.using("bf16") for shorter numbers'
            )


def _decides(part: Any) -> str:
    return f"{type(part).__name__} decides on the processor how to go on"


def check(x: Tensor, y: Tensor, first: Tensor, integers: bool = False) -> None:
    """TypeError or ValueError for a mini-batch that a model, whose first parameter this is, cannot take. integers:
    whether its first block may take them, as an embedding does."""
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        raise TypeError(f"step takes tensors, given {type(x).__name__} and {type(y).__name__}; use torch.as_tensor")
    if x.layout != torch.strided or y.layout != torch.strided:
        raise ValueError("inputs and targets are dense tensors, given sparse ones; use x.to_dense()")
    integers = integers and not x.is_floating_point()
    if (x.dtype != first.dtype and not integers) or x.device != first.device:
        raise ValueError(
            f"the model is {first.dtype} on {first.device}, the input {x.dtype} on {x.device}; "
            f"convert it with x.to({str(first.device)!r}, {first.dtype})"
        )
    if torch.is_autocast_enabled(x.device.type):
        raise ValueError(
            "a step inside torch.autocast: altmin rounds products by itself, so call it outside, within "
            'altmin.runners.precision.using("bf16") for shorter numbers'
        )
    if y.device != x.device:
        raise ValueError(f"the input is on {x.device}, the targets on {y.device}; move one with .to(...)")
    if x.ndim < 2 - integers or len(x) == 0:
        raise ValueError(f"a mini-batch has at least one sample and one feature, given an input of {tuple(x.shape)}")
    if y.ndim == 0 or len(x) != len(y):
        raise ValueError(f"as many targets as samples are needed: {len(x)} samples, targets of {tuple(y.shape)}")
