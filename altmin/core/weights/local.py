"""The local weight rules: every block takes gradient steps on its own small problem (Algorithm 3, without memory).

The gradients are exact, local and in the loss's own scale; rates and options mean what they mean in torch. An ordinary
step is taken by torch's fused kernels, in place.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from altmin.calculus import Params
from altmin.common.describe import describe
from altmin.common.errors import demand, demand_fraction
from altmin.core.chain import Block, Chain
from altmin.core.step import soft_threshold
from altmin.core.weights.adam_sgd import adam, coefficients, sgd
from altmin.core.weights.decay import groups, undecayed
from altmin.core.weights.rule import ByBlock, Change, Contribution, Proposal, Rates, State, WeightRule

OptimizerFactory = Callable[[Iterable[Any]], torch.optim.Optimizer]
LARGEST = {torch.float32: 1e18, torch.float64: 1e150, torch.float16: 1e2, torch.bfloat16: 1e18}
"""The largest gradient: beyond it, its square or a step along it may not be finite."""
PARTS, PART = 64, 2048
"""Number of parts, about, into which tensors are cut for a GPU, and the fewest entries in each."""
Parts = list[Sequence[Tensor]]


class LocalRule(WeightRule):
    """Steps along the gradient of each block's own problem.

    weight_decay: of all parameters, or of weight matrices only
    unless decay_biases (`weights.decay`). l1: weight of |W|_1, by a proximal step after each, except on biases. steps:
    on the same problem in each mini-batch. clip_norm: the largest norm of all gradients together, as in
    `torch.nn.utils.clip_grad_norm_`; None for no limit.
    """

    moments: tuple[str, ...] = ()
    """The names of tensors like the parameters in a block's state."""
    decoupled = False

    def __init__(
        self,
        lr: float,
        weight_decay: float,
        l1: float,
        steps: int,
        clip_norm: float | None,
        decay_biases: bool,
    ):
        of = type(self).__name__
        for name, value in (("lr", lr), ("weight_decay", weight_decay), ("l1", l1)):
            demand(of, name, value)
        demand(of, "steps", steps, low=1, whole=True)
        if clip_norm is not None:
            demand(of, "clip_norm", clip_norm, above=True)
        self.lr, self.weight_decay, self.l1, self.inner_steps = lr, weight_decay, l1, steps
        self.clip_norm, self.decay_biases = clip_norm, decay_biases

    def numbers(self) -> dict[str, float]:
        return {"lr": self.lr, "weight_decay": self.weight_decay, "l1": self.l1}

    def init(self, block: Block, parameters: Params) -> State:
        return self.start(parameters)

    def start(self, parameters: Params) -> State:
        """Return the state of parameters before the first step."""
        step = parameters[0].new_zeros((), dtype=torch.float32) if parameters else torch.zeros(())
        return {"step": step, **{name: [torch.zeros_like(p) for p in parameters] for name in self.moments}}

    def update(self, parameters: Params, state: State, contribution: Contribution, rates: Rates) -> Change:
        return self.update_all({0: parameters}, {0: state}, {0: contribution}, {0: rates})[0]

    def update_all(self, theta: ByBlock, states: ByBlock, contributions: ByBlock, rates: ByBlock) -> dict[int, Change]:
        grads = clipped({l: self.gradients(contribution) for l, contribution in contributions.items()}, self.clip_norm)
        changes: dict[int, Change] = {}
        for l in grads:
            step, moves = states[l]["step"] + 1, []
            after: dict[str, Any] = {"step": step, **{name: [] for name in self.moments}}
            stepped, decays = self.stepper(rates[l], step), self._decays(rates[l])
            for i, (p, g) in enumerate(zip(theta[l], grads[l], strict=True)):
                coupled = not self.decoupled and _is_set(decays[i])
                moments = [states[l][name][i] for name in self.moments]
                move, *moments = stepped(moments, g + decays[i] * p if coupled else g)
                moves.append(move)
                for name, moment in zip(self.moments, moments, strict=True):
                    after[name].append(moment)
            changes[l] = moves, after
        changes = self.turned(changes, states, grads, contributions, rates)
        return {l: (self._decayed(moves, theta[l], rates[l]), after) for l, (moves, after) in changes.items()}

    def _decayed(self, moves: Sequence[Tensor], parameters: Params, rates: Rates) -> list[Tensor]:
        """Return changes with decoupled weight decay and the proximal step of l1, in the parameters' types."""
        lr, decays, l1, changes = rates["lr"], self._decays(rates), rates["l1"], []
        for move, p, decay in zip(moves, parameters, decays, strict=True):
            change = move - lr * decay * p if self.decoupled and _is_set(decay) else move
            if p.ndim > 1 and _is_set(l1):
                change = soft_threshold(p + change, lr * l1) - p
            changes.append(change.to(p.dtype))
        return changes

    def _decays(self, rates: Rates) -> list[Any]:
        """Return the weight decay of each parameter."""
        return [rates["weight_decay"] if self.decay_biases or matrix else 0.0 for matrix in rates["decayed"]]

    def gradients(self, contribution: Contribution) -> Sequence[Tensor]:
        """Return the gradients in a contribution: here all of it."""
        grads: Sequence[Tensor] = contribution
        return grads

    def turned(
        self,
        changes: dict[int, Change],
        states: ByBlock,
        grads: ByBlock,
        contributions: ByBlock,
        rates: ByBlock,
    ) -> dict[int, Change]:
        """Return changes and next states before weight decay; here as they are."""
        return changes

    def stepper(self, rates: Rates, step: Tensor) -> Callable[[Sequence[Tensor], Tensor], Sequence[Tensor]]:
        """Return a function of moments and gradient, which returns the change and the next moments."""
        raise NotImplementedError

    def propose(self, theta: ByBlock, states: ByBlock, contributions: ByBlock, rates: ByBlock) -> Proposal:
        """Step by torch's fused kernel, in place: one call for all parameters with the same rates."""
        calls: dict[Any, list[tuple[Tensor, ...]]] = {}
        steps = []
        for l, grads in (contributions if self.clip_norm is None else clipped(contributions, self.clip_norm)).items():
            state, numbers = states[l], rates[l]
            steps += [state["step"]] if theta[l] else []  # without parameters it has no device
            for i, (p, g) in enumerate(zip(theta[l], grads, strict=True)):
                if p.requires_grad:
                    decay = numbers["weight_decay"] if self.decay_biases or numbers["decayed"][i] else 0.0
                    g = g if g.stride() == p.stride() else torch.empty_like(p).copy_(g)  # as the kernels require
                    row = [p, g, state["step"]]
                    for name in self.moments:
                        row.append(state[name][i])
                    calls.setdefault((numbers["lr"], decay), []).append(tuple(row))

        def apply(ok: Tensor | None) -> None:
            count_up(steps, ok)
            for (lr, decay), rows in calls.items():
                params, grads, counts, *moments = map(list, zip(*in_parts(rows), strict=True))
                self.kernel(params, grads, counts, moments, lr, decay, None if ok is None else 1.0 - ok.float())
                if self.l1:
                    l1 = lr * self.l1 if ok is None else lr * self.l1 * ok
                    for p in (p for p, *_ in rows if p.ndim > 1):
                        p.copy_(soft_threshold(p, l1))

        return Proposal(can_follow(calls), apply)

    def kernel(self, params: Any, grads: Any, counts: Any, moments: Any, lr: Any, decay: float, found_inf: Any) -> None:
        """Take a step in place, none where found_inf is 1. counts: of steps, this one among them."""
        raise NotImplementedError


def count_up(steps: list[Tensor], ok: Tensor | None) -> None:
    """Add 1 to numbers of steps in place, where ok."""
    if ok is None:  # a number would become a tensor for each of them
        torch._foreach_add_(steps, steps[0].new_ones(()) if steps and steps[0].is_cpu else 1)
    else:
        torch._foreach_add_(steps, [ok.to(steps[0].dtype)] * len(steps))  # a list: one tensor would be read


def _is_set(number: Any) -> bool:
    """Return whether a number is a tensor or not zero."""
    return isinstance(number, Tensor) or bool(number)


class LocalAdam(LocalRule):
    """AM-Adam's rule: torch's Adam. decoupled_weight_decay: that of AdamW. The other options are those of
    `LocalRule`."""

    moments = ("exp_avg", "exp_avg_sq")

    def __init__(  # noqa: PLR0913  (the options of torch's Adam, and those of LocalRule)
        self,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        l1: float = 0.0,
        steps: int = 1,
        clip_norm: float | None = None,
        decay_biases: bool = True,
    ):
        beta1, beta2 = betas
        demand_fraction("LocalAdam", beta1=beta1, beta2=beta2)
        demand("LocalAdam", "eps", eps, above=True)  # otherwise a gradient of zero would give NaN
        super().__init__(lr, weight_decay, l1, steps, clip_norm, decay_biases)
        self.betas, self.eps, self.decoupled = (beta1, beta2), eps, decoupled_weight_decay

    def numbers(self) -> dict[str, float]:
        return super().numbers() | {"beta1": self.betas[0], "beta2": self.betas[1], "eps": self.eps}

    def stepper(self, rates: Rates, step: Tensor) -> Any:
        c = coefficients(rates, step.double())
        return lambda moments, g: adam(moments[0], moments[1], g, c)

    def kernel(self, params: Any, grads: Any, counts: Any, moments: Any, lr: Any, decay: float, found_inf: Any) -> None:
        kernel: Any = torch._fused_adamw_ if self.decoupled else torch._fused_adam_
        beta1, beta2 = self.betas
        options: Any = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": self.eps, "weight_decay": decay}
        kernel(params, grads, *moments, [], counts, **options, amsgrad=False, maximize=False, found_inf=found_inf)


class LocalSGD(LocalRule):
    """AM-SGD's rule: torch's SGD. The other options are those of `LocalRule`."""

    def __init__(
        self,
        lr: float = 0.1,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        l1: float = 0.0,
        steps: int = 1,
        clip_norm: float | None = None,
        decay_biases: bool = True,
    ):
        demand("LocalSGD", "momentum", momentum)
        super().__init__(lr, weight_decay, l1, steps, clip_norm, decay_biases)
        self.momentum = momentum

    @property
    def moments(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("momentum_buffer",) if self.momentum else ()

    def numbers(self) -> dict[str, float]:
        return super().numbers() | {"momentum": self.momentum}

    def stepper(self, rates: Rates, step: Tensor) -> Any:
        lr = rates["lr"]
        return lambda moments, g: sgd(moments[0], g, lr, rates["momentum"]) if moments else (-lr * g,)

    def kernel(self, params: Any, grads: Any, counts: Any, moments: Any, lr: Any, decay: float, found_inf: Any) -> None:
        kernel: Any = torch._fused_sgd_
        fixed = {"dampening": 0.0, "nesterov": False, "maximize": False, "is_first_step": False}
        options = {"lr": lr, "weight_decay": decay, "momentum": self.momentum, "found_inf": found_inf}
        kernel(params, grads, *(moments or [[]]), **options, **fixed)


class LocalOptimizer(WeightRule):
    """Any torch optimizer on the local problems: the adapter for what is no rule. It runs in one process and in
    `Distributed`; recorded steps, ensembles and `LayerParallel` take rules alone.

    factory: groups of parameters -> optimizer. lr: the learning rate. clip_norm: as in `LocalAdam`. decay_biases:
    whether the optimizer's weight decay acts on all parameters, as in torch, or on weight matrices only.
    """

    def __init__(self, factory: OptimizerFactory, lr: float, clip_norm: float | None = None, decay_biases: bool = True):
        demand("LocalOptimizer", "lr", lr)
        if clip_norm is not None:
            demand("LocalOptimizer", "clip_norm", clip_norm, above=True)
        self.factory, self.lr, self.clip_norm, self.decay_biases = factory, lr, clip_norm, decay_biases

    def assign(self, chain: Chain) -> dict[int, WeightRule]:
        return dict.fromkeys(range(len(chain)), BoundOptimizer(self, chain))


class BoundOptimizer(WeightRule):
    """A `LocalOptimizer` with the optimizer of one chain's parameters, which has all state."""

    def __init__(self, rule: LocalOptimizer, chain: Chain):
        named = {id(p): p for block in chain for p in block.parameters()}
        spared = set() if rule.decay_biases else undecayed(chain.model)
        parts = groups([p for p in named.values() if id(p) in spared], spared) if spared else []
        parts = [{"params": [p for p in named.values() if id(p) not in spared]}, *parts]
        self.rule, self.optimizer = rule, rule.factory([{**part, "lr": rule.lr} for part in parts if part["params"]])
        if not isinstance(self.optimizer, torch.optim.Optimizer) or isinstance(self.optimizer, torch.optim.LBFGS):
            raise TypeError(
                "the factory of LocalOptimizer makes a torch optimizer that steps along gradients, such as "
                f"torch.optim.AdamW, given {type(self.optimizer).__name__}"
            )

    def __repr__(self) -> str:
        return repr(self.rule)

    def propose(self, theta: ByBlock, states: ByBlock, contributions: ByBlock, rates: ByBlock) -> Proposal:
        rows, optimizer = [], self.optimizer
        for l, grads in clipped(contributions, self.rule.clip_norm).items():
            rows += [(p, g) for p, g in zip(theta[l], grads, strict=True) if p.requires_grad]
        by_id = {id(p): g for p, g in rows}

        def apply(ok: Tensor | None) -> None:
            for p in (p for group in optimizer.param_groups for p in group["params"]):
                p.grad = by_id.get(id(p))
            optimizer.step()

        lr = max(group["lr"] for group in optimizer.param_groups)
        return Proposal(can_follow({(lr, 0.0): rows}), apply)

    def why_not_captured(self) -> str:
        return f"{describe(self.rule.factory)} is an optimizer of torch, not a weight rule; take LocalAdam or LocalSGD"


def clipped(contributions: Mapping[int, Any], clip_norm: float | None) -> Mapping[int, Any]:
    """Return the gradients of blocks with a norm of at most clip_norm, all together."""
    if clip_norm is None:
        return contributions
    norms = torch.stack([torch.linalg.vector_norm(g) for grads in contributions.values() for g in grads])
    factor = (clip_norm / (torch.linalg.vector_norm(norms) + 1e-6)).clamp_max(1.0)
    return {l: [g * factor for g in grads] for l, grads in contributions.items()}


def can_follow(calls: Mapping[Any, Sequence[tuple[Tensor, ...]]]) -> Tensor:
    """Return whether steps leave weights and squares of gradients finite: parameters and gradients by their learning
    rate and weight decay."""
    result: Any = None
    for (lr, decay), rows in calls.items():
        params, grads, *_ = zip(*rows, strict=True)
        norm = torch.stack(torch._foreach_norm(grads)).max()
        if decay:
            norm = norm + decay * torch.stack(torch._foreach_norm(params, torch.inf)).max()
        limit = LARGEST[grads[0].dtype]
        ok = norm * lr.clamp_min(1.0) < limit if isinstance(lr, Tensor) else norm < limit / max(1.0, lr)
        result = ok if result is None else result & ok
    return torch.ones((), dtype=torch.bool) if result is None else result


def in_parts(rows: Sequence[Sequence[Tensor]]) -> Parts:
    """Return rows of tensors of one shape, or of none, cut alike while a CUDA graph is recorded: of a list of tensors
    torch's kernels compute each 65,536 numbers in one block of threads, while most of the GPU waits. Elsewhere they
    are returned as they are, since it takes the processor longer to cut them."""
    if not _is_recorded(rows[0][0]):
        return list(rows)
    size = max(PART, sum(row[0].numel() for row in rows) // PARTS)
    parts: Parts = []
    for row in rows:
        if row[0].numel() <= size or not all(t.is_contiguous() for t in row):
            parts.append(row)
        else:
            count = -(-row[0].numel() // size)
            parts += zip(*(t.view(-1).split(size) if t.ndim else [t] * count for t in row), strict=True)
    return parts


def norms(tensors: list[Tensor]) -> Tensor:
    """Return the norm of each tensor, in one vector; computed in parts as by `in_parts`."""
    parts = max(1, PARTS // len(tensors)) if _is_recorded(tensors[0]) else 1
    if parts == 1:
        return torch.stack(torch._foreach_norm(tensors))
    part_norms = torch._foreach_norm([part for t in tensors for part in t.reshape(-1).tensor_split(parts)])
    return torch.linalg.vector_norm(torch.stack(part_norms).view(-1, parts), dim=1)


def _is_recorded(t: Tensor) -> bool:
    """Return whether kernels are being recorded in a CUDA graph."""
    return t.is_cuda and torch.cuda.is_current_stream_capturing()
