"""`AltMin`: owns the state of a run, checks its input, and calls the step (Algorithm 1)."""

import copy
import math
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from altmin.calculus.context import LOCAL, BucketedSum, Context
from altmin.common.errors import Diverged, shown
from altmin.common.inputs import Batch, Inputs, tensors_of
from altmin.common.interrupts import InterruptsDeferred, no_grad
from altmin.common.state import demand_separate, load_parts, matched, overwrite
from altmin.core.chain import Chain
from altmin.core.codes.choose import choose
from altmin.core.codes.gradient import GradientCodes
from altmin.core.codes.problem import Problem
from altmin.core.cutting import split
from altmin.core.first_step import check_first_step
from altmin.core.losses import AdaptedLoss, LossFunction, loss_of
from altmin.core.penalty import Penalty
from altmin.core.step import CodeSolver, Outcome, encode, move_codes, with_states
from altmin.core.weights.local import LocalAdam, LocalSGD
from altmin.core.weights.rule import WeightRule
from altmin.core.weights.updates import Updates

Codes = CodeSolver | Literal["gradient", "printed", "discrete", "straight-through", "exact", "parallel"] | None

BOUNDED = ("softmax", "softmax2d", "sigmoid")
"""Modules and functions whose outputs are no logits."""


@dataclass(frozen=True)
class Metrics:
    """Numbers of one step, before the weights moved.

    loss: of the encoded batch, a tensor without dimensions; it is also f before the codes moved. penalty: mu.
    objective: f(W, C; mu) after the codes moved, per sample. residuals: root mean square of c_l - W_l s(c_{l-1}) after
    the codes moved, for each hidden block. movements: root mean square of how far c_l has
    moved from the value that its block gives it.
    """

    loss: Tensor
    _penalty: float | Tensor
    _objective: Any
    _costs: Any
    _moved: Any
    _sizes: Sequence[float]

    @property
    def penalty(self) -> float:
        return float(self._penalty)

    @property
    def objective(self) -> float:
        return float(self._objective)

    @property
    def residuals(self) -> list[float]:
        return [(cost / size) ** 0.5 for cost, size in zip(map(float, self._costs), self._sizes, strict=False)]

    @property
    def movements(self) -> list[float]:
        return [(moved / size) ** 0.5 for moved, size in zip(map(float, self._moved), self._sizes, strict=False)]


class AltMin:
    """Trainer of a model in place, one mini-batch at a time, without backpropagation.

    loss: nn.CrossEntropyLoss(), nn.MSELoss() or any callable (output, y) -> scalar, the mean over the batch. codes,
    weights, penalty: how codes move, how weights follow, and what distance between them costs; a name for codes is
    one of "gradient", "printed", "discrete", "straight-through" and, for codes in time,
    "exact" and "parallel"; a number for the penalty is a constant mu. at: after which modules to cut the
    model, see `split`. check: whether the first step begins with `check_once`. inputs: the arguments of the model's
    forward that a mini-batch has, see `split`; a mini-batch of several is a tuple, or a dict by their names. compile:
    whether steps are compiled, on a GPU recorded besides: the same numbers up to rounding. ValueError for codes or
    weights that cannot be; batches that differ from the first, and steps that torch cannot compile, are taken as ever.

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

    loss = AdaptedLoss()
    compiler: ClassVar[Callable[["AltMin"], Any] | None] = None
    """Class that takes the steps of a trainer with compile=True; `altmin.runners.recorded` sets it."""

    def __init__(  # noqa: PLR0913  (public)
        self,
        model: nn.Module,
        loss: LossFunction | None = None,
        codes: Codes = None,
        weights: WeightRule | None = None,
        penalty: Penalty | float | None = None,
        at: Collection[str] | None = None,
        check: bool = True,
        inputs: Sequence[str] | None = None,
        compile: bool = False,
    ):
        self.model = model
        self.chain = split(model, at, inputs)
        self.at = None if at is None else tuple(at)
        check_model(model)
        self.loss = loss_of(loss, self.chain.outputs)
        self.codes: CodeSolver = choose(codes, self.chain)
        init = getattr(self.codes, "init", None)
        self.code_states: dict[int, Any] = {} if init is None else dict(enumerate(init(self.chain)))
        """States of the code solver by block, if it has any."""
        self.weights: WeightRule = LocalAdam() if weights is None else weights
        if not isinstance(self.weights, WeightRule):
            raise TypeError(
                "weights is a weight rule, such as altmin.LocalAdam(lr=0.001) or, of any torch optimizer, "
                f"altmin.LocalOptimizer(torch.optim.Adagrad, lr=...); given {shown(weights)}"
            )
        if isinstance(penalty, int | float):
            penalty = Penalty(penalty, increment=0.0, maximum=None)
        if not isinstance(penalty, Penalty | None):
            raise TypeError(f"penalty is an altmin.Penalty or a number, given {shown(penalty)}")
        self.penalty = Penalty() if penalty is None else copy.copy(penalty)
        self.theta = self.chain.parameters()
        demand_separate(model.named_parameters())
        self.updates = Updates(self.weights, self.chain, self.theta)
        self.unchecked = check
        """True until `check_once` has been called."""
        self.compiled = self._compiled() if compile else None
        for mistake in mistakes(self.chain, vars(self)["loss"], self.updates):
            warnings.warn(mistake, stacklevel=2)

    def __repr__(self) -> str:
        parts = {name: getattr(self, name) for name in ("loss", "codes", "weights", "penalty")}
        lines = [f"{type(self.model).__name__} in {len(self.chain)} blocks", *(f"{k}={v!r}" for k, v in parts.items())]
        lines += [] if self.compiled is None else ["compile=True"]
        return "\n  ".join(["AltMin(", *(f"{line}," for line in lines)]) + "\n)"

    def _compiled(self) -> Any:
        """Return what takes the steps of a copy that shares everything with this trainer."""
        assert AltMin.compiler is not None
        plain: AltMin = object.__new__(type(self))
        vars(plain).update({**vars(self), "compiled": None})
        return AltMin.compiler(plain)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.compiled = self._compiled() if state["compiled"] else None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "compiled": getattr(self, "compiled", None) is not None}

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer that a torch learning-rate scheduler attaches to."""
        optimizer: torch.optim.Optimizer = self.updates.optimizer
        return optimizer

    @no_grad
    def step(self, x: Any, y: Tensor, sample_weight: Tensor | None = None, context: Context = LOCAL) -> Metrics:
        """Train on one mini-batch: encode, update codes, update weights, update mu. Return the metrics.

        x: a tensor; for a model of several inputs a tuple of tensors, or a dict by the names of its arguments.
        sample_weight: one for each sample; a sample of weight w counts as w samples. context: how sums over the batch
        are taken. ValueError if the batch does not fit the model, `Diverged` if loss or
        objective are not finite; then the model has not changed. An interrupt (Ctrl-C) leaves a step taken or not.
        """
        if self.compiled is not None and sample_weight is None and context is LOCAL:
            metrics: Metrics = self.compiled.step(x, y)
            return metrics
        x = self._checked(x, y, context)
        if sample_weight is not None:
            context = replace(context, weights=self._checked_weights(sample_weight, x, context))
        samples, mu = context.samples(x), self.penalty.value
        moved = move_codes(self.chain, self.theta, self._solver(), self.loss, x, y, mu, context)
        problems = dict(enumerate(moved.problems))
        update = self.updates.next(self._contributions(moved, problems, x, y, context), samples, problems)
        with InterruptsDeferred():
            self.updates.take(update)
            self._commit(moved)
            self.penalty.step()
        return metrics_of(moved, mu, samples, len(x))

    @no_grad
    def gather(self, x: Any, y: Tensor, context: Context = LOCAL) -> Metrics:
        """Add one part of a mini-batch that does not fit into memory: as `step`, but weights and mu change in
        `apply`."""
        x = self._checked(x, y, context)
        samples, mu = context.count(len(x)), self.penalty.value
        moved = move_codes(self.chain, self.theta, self._solver(), self.loss, x, y, mu, context)
        contributions = self._contributions(moved, dict(enumerate(moved.problems)), x, y, context)
        with InterruptsDeferred():
            self.updates.gather(contributions, samples)
            self._commit(moved)
        return metrics_of(moved, mu, samples, len(x))

    @no_grad
    def apply(self) -> None:
        """Update weights and mu from everything gathered since the last update."""
        with InterruptsDeferred():
            self.updates.apply()
            self.penalty.step()

    @no_grad
    def check_once(self, x: Batch, y: Tensor, context: Context = LOCAL) -> None:
        """Raise ValueError unless the blocks have the model's output, buffers and, where no derivative is estimated,
        autograd's gradients for this mini-batch, see `first_step`, and weight rules of the user's change none of their
        arguments. Does nothing from the second time on, nor for a single row of a rank, which batch norm alone cannot
        take."""
        if self.unchecked and (context.shard is None or len(x) > 1):
            with InterruptsDeferred():  # modes and buffers change until its end
                check_first_step(self.chain, self.loss, x, y, context)
                if not all(type(rule).__module__.startswith("altmin.") for rule in self.updates.rules.values()):
                    self._check_rules(x, y)
            self.unchecked = False

    def _check_rules(self, x: Batch, y: Tensor) -> None:
        device = y.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            moved = move_codes(self.chain, self.theta, choose(None, self.chain), self.loss, x, y, 1.0)
            problems = {l: problem for l, problem in enumerate(moved.problems) if l in self.updates.states}
            if bool(moved.is_finite):  # otherwise the step says where
                self.updates.demand_pure(self.updates.measure(self.theta, problems), len(x), problems)

    def why_not_captured(self) -> str:
        """Return why a step cannot be captured as a CUDA graph, which allows no decision on the CPU; empty if it
        can."""
        decides = f"{type(self.codes).__name__} decides on the processor how to go on"
        codes: str = self.codes.why_not_captured() if hasattr(self.codes, "why_not_captured") else decides
        if reason := codes or self.updates.why_not_captured():
            return reason
        kind = type(self.penalty)
        if (kind.step, kind.end_epoch) != (Penalty.step, Penalty.end_epoch):
            return f"{kind.__name__} computes mu on the processor"
        for module in self.model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training and module.momentum is None:
                return "its batch norm averages over all batches (momentum=None), which are counted on the processor"
        return ""

    def end_epoch(self) -> None:
        """End an epoch and update mu."""
        self.penalty.end_epoch()

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the model's own parameters and buffers. Save both:
        `torch.save({"model": am.model.state_dict(), "am": am.state_dict()}, path)`."""
        state = {"weights": self.updates.state_dict(), "penalty": self.penalty.state_dict()}
        return {**state, "codes": copy.deepcopy(self.code_states)} if self.code_states else state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load another's `state_dict`; one that does not fit is a ValueError, and nothing changes."""
        states = dict(state)
        codes = matched(states.pop("codes", {}), self.code_states, "codes of AltMin")
        load_parts({"weights": self.updates, "penalty": self.penalty}, states, "AltMin")
        overwrite(self.code_states, codes)

    def _checked(self, x: Any, y: Tensor, context: Context) -> Batch:
        """Return the inputs as blocks take them. ValueError for a batch or a model that a step does not take."""
        x = x if isinstance(x, Tensor) and len(self.chain.inputs) == 1 else self.chain.read(x)
        check(x, y)
        self.chain.demand_unchanged()
        if self.unchecked:
            self.check_once(x, y, context)
        return x

    def _solver(self) -> CodeSolver:
        """Return the code solver with its present states."""
        return with_states(self.codes, list(self.code_states.values())) if self.code_states else self.codes

    def _contributions(
        self, moved: Outcome, problems: dict[int, Problem], x: Batch, y: Tensor, context: Context
    ) -> dict[int, Any]:
        """Return the contribution of every block to the weight step. `Diverged` or ValueError unless everything is
        finite."""
        total = None if context.shard is None else BucketedSum(context)
        contributions = self.updates.measure(self.theta, problems, total)
        checked = moved.checked if total is None else total.finish(moved.checked)[0]
        if not all(map(math.isfinite, (moved.objective, checked, moved.loss))):
            raise self._not_finite(x, y, context)
        return contributions

    def _commit(self, moved: Outcome) -> None:
        """Write the next buffers of the model and states of the code solver."""
        for m, saved in moved.statistics:
            m.commit(saved)
        if self.code_states:
            overwrite(self.code_states, moved.solver_states)

    def _checked_weights(self, w: Any, x: Batch, context: Context) -> Tensor:
        """Return the weights as the step uses them. ValueError if samples are not independent of each other and so
        cannot be weighted."""
        mixing = [block for block in self.chain if block.mixes_samples]
        if mixing or type(self.codes) is not GradientCodes:
            what = "batch norm mixes them" if mixing else f"{type(self.codes).__name__} has no weights"
            raise ValueError(
                f"sample weights need samples that are trained by themselves, and {what}; repeat samples instead of "
                "weighing them"
            )
        return check_weights(w, tensors_of(x)[0], context)

    def _not_finite(self, x: Batch, y: Tensor, context: Context) -> Exception:
        """Return the error for a step with values that are not finite, which names the first such place."""
        for name, tensor in (*(("input holds", t) for t in tensors_of(x)), ("targets hold", y)):
            if not bool(tensor.isfinite().all()):
                return ValueError(
                    f"the {name} NaN or infinite values; clean them before training (nothing was changed)"
                )
        alone = replace(context, shard=None)  # other ranks may have an error of their own
        values = encode(self.chain.blocks, self.theta, x, alone)[0][1:]
        self.loss.check(values[-1], y)
        for l, value in enumerate(values):
            if not bool(value.isfinite().all()):
                return Diverged(f"block {l} ({self.chain.blocks[l]})")
        return Diverged("the objective")


def metrics_of(moved: Outcome, mu: Any, samples: Any, rows: int) -> Metrics:
    """Return the metrics of a step. samples: their number on all ranks, or the sum of their weights; rows: of this
    rank."""
    sizes = [problem.delta.numel() * samples / rows for problem in moved.problems[:-1]]
    return Metrics(moved.loss, mu, moved.objective, moved.costs[:-1], moved.squares[:-1], sizes)


def mistakes(chain: Chain, loss: Any, updates: Updates) -> Iterator[str]:
    """Yield a sentence for each combination of model, loss and rules that trains badly without an error."""
    last = chain.blocks[-1].maps[-1].module._get_name().strip("()").rpartition(", ")[2]
    if isinstance(loss, nn.CrossEntropyLoss | nn.BCEWithLogitsLoss) and last.lower() in BOUNDED:
        yield (
            f"the model ends in {last}, whose outputs lie between 0 and 1, and {type(loss).__name__} takes outputs of "
            f"any size (logits), so that it learns slowly; leave {last} out, and apply it to predictions"
        )
    if getattr(loss, "reduction", "") == "sum" and any(isinstance(rule, LocalSGD) for rule, _ in updates.by_rule):
        yield (
            'the loss has reduction="sum", so that steps of LocalSGD grow with the size of the mini-batch; take '
            'reduction="mean", or divide lr by that size'
        )
    if not any(p.requires_grad for block in updates.theta for p in block):
        yield "all parameters are frozen, so that no step changes a weight; free some with requires_grad_()"


def check_model(model: nn.Module) -> None:
    """Raise TypeError or ValueError for parameters that cannot be trained."""
    if any(isinstance(m, nn.Embedding | nn.EmbeddingBag) and m.sparse for m in model.modules()):
        raise ValueError("an embedding with sparse=True has sparse gradients, and these are dense; give sparse=False")
    for name, p in model.named_parameters():
        if p.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"{name} is {p.dtype}; altmin trains float32 and float64: use model.float(), and steps inside "
                "torch.autocast(device, torch.bfloat16) for shorter numbers"
            )


def check(x: Batch, y: Tensor) -> None:
    """Raise TypeError or ValueError for a mini-batch that would be computed otherwise than it looks."""
    if not isinstance(x, Tensor | Inputs) or not isinstance(y, Tensor):
        raise TypeError(f"step takes tensors, given {type(x).__name__} and {type(y).__name__}; use torch.as_tensor")
    if y.ndim == 0 or len(x) != len(y):
        raise ValueError(f"as many targets as samples are needed: {len(x)} samples, targets of {tuple(y.shape)}")
    if not len(x):
        raise ValueError("a mini-batch without samples; leave it out")
    if torch.is_inference_mode_enabled():
        raise ValueError("a step inside torch.inference_mode(), where nothing is differentiated; call it outside")
    if torch.is_autocast_enabled(y.device.type) and torch.get_autocast_dtype(y.device.type) == torch.float16:
        raise ValueError(
            "a step inside torch.autocast with float16, in which small gradients vanish; give it torch.bfloat16"
        )


def check_weights(w: Any, x: Tensor, context: Context = LOCAL) -> Tensor:
    """Return the weights of samples as numbers of the input's type, on its device. ValueError unless there is one for
    each sample, none negative, not all zero on all ranks."""
    if w.shape != x.shape[:1]:
        raise ValueError(f"sample_weight has one weight for each of {len(x)} samples, given shape {tuple(w.shape)}")
    sound = bool(w.isfinite().all()) and not bool((w < 0).any())
    if not sound or not context.sum_numbers(float((w > 0).any()))[0]:
        raise ValueError("sample_weight holds finite weights of at least 0, and not all are zero")
    return w.to(x.device, x.dtype if x.is_floating_point() else torch.get_default_dtype())
