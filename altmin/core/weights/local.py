"""The local weight rules: every block takes gradient steps on its own small problem (Algorithm 3, without memory).

The gradients are exact, local and in the loss's own scale; torch's optimizers use them, and their options have the
same meaning as in torch. These act on each parameter by itself, so one optimizer over all blocks is the same
as one for each, and all blocks move at once.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from altmin.calculus import Params, Saved
from altmin.calculus.context import BucketedSum
from altmin.calculus.series import Series
from altmin.common.describe import describe
from altmin.common.errors import Diverged, demand, demand_unclaimed
from altmin.core.chain import Block, Chain
from altmin.core.codes.links import LocalProblem
from altmin.core.step import soft_threshold
from altmin.core.weights.decay import undecayed
from altmin.core.weights.rule import WeightRule

OptimizerFactory = Callable[[Iterable[Any]], torch.optim.Optimizer]
LARGEST = {torch.float32: 1e18, torch.float64: 1e150, torch.float16: 1e2, torch.bfloat16: 1e18}
"""The largest gradient: beyond it, its square or a step along it may not be finite."""


class LocalOptimizer(WeightRule):
    """Any torch optimizer on the local problems.

    factory: groups of parameters -> optimizer. lr: one for all blocks, or a sequence with one for each. steps: inner
    steps per mini-batch. l1: weight of |W|_1, by a proximal step after each, except on biases. clip_norm: the largest
    norm of all gradients together, as in `torch.nn.utils.clip_grad_norm_`; None for no limit. decay_biases: whether
    the optimizer's weight decay acts on all parameters, as in torch, or on weight matrices only (`weights.decay`).
    """

    def __init__(
        self,
        factory: OptimizerFactory,
        lr: float | Sequence[float],
        steps: int = 1,
        l1: float = 0.0,
        clip_norm: float | None = None,
        decay_biases: bool = True,
    ):
        of = type(self).__name__
        for rate in [lr] if isinstance(lr, str) or not isinstance(lr, Sequence) else lr:
            demand(of, "lr", rate)
        demand(of, "steps", steps, low=1, whole=True)
        demand(of, "l1", l1)
        if clip_norm is not None:
            demand(of, "clip_norm", clip_norm, above=True)
        self.factory, self.lr, self.steps, self.l1 = factory, lr, steps, l1
        self.clip_norm, self.decay_biases = clip_norm, decay_biases
        self.options: dict[str, Any] = {"factory": factory}
        """The options of the optimizer, for `repr`."""

    def __repr__(self) -> str:
        options = {"lr": self.lr, **self.options, "l1": self.l1, "steps": self.steps}
        options |= {"clip_norm": self.clip_norm, "decay_biases": self.decay_biases}
        return f"{type(self).__name__}({', '.join(f'{name}={describe(value)}' for name, value in options.items())})"

    def attach(self, chain: Chain, blocks: Sequence[int]) -> None:
        """Builds the optimizer of the given blocks of a chain, once."""
        demand_unclaimed(self, "weight rule")
        self.chain, self.theta, self.blocks = chain, chain.parameters(), tuple(blocks)
        rates = list(self.lr) if isinstance(self.lr, Sequence) else [self.lr] * len(blocks)
        if len(rates) != len(blocks):
            raise ValueError(f"lr has {len(rates)} entries for {len(blocks)} blocks; give one for each, or one for all")
        spared = set() if self.decay_biases else undecayed(chain.model)
        groups: dict[tuple[float, bool], list[Tensor]] = {}
        rate_of: dict[int, float] = {}
        for l, rate in zip(blocks, rates, strict=True):
            for p in self.theta[l]:
                if rate_of.setdefault(id(p), rate) != rate:
                    raise ValueError(
                        f"{chain.tied[id(p)]!r} is used in blocks with the rates {rate_of[id(p)]} and {rate}; give "
                        "these blocks one rate"
                    )
                group = groups.setdefault((rate, id(p) in spared), [])
                if not any(p is each for each in group):
                    group.append(p)
        kept = [
            {"params": group, "lr": rate, **({"weight_decay": 0.0} if bare else {})}
            for (rate, bare), group in groups.items()
        ]
        self.optimizer = self.factory(kept or [{"params": [torch.zeros(0, requires_grad=True)], "lr": 0.0}])
        if not isinstance(self.optimizer, torch.optim.Optimizer) or isinstance(self.optimizer, torch.optim.LBFGS):
            raise TypeError(
                f"the factory of {type(self).__name__} makes a torch optimizer that steps along gradients, such as "
                f"torch.optim.AdamW, given {type(self.optimizer).__name__}"
            )
        self.claimed = True

    def measure(self, block: Block, parameters: Params, problem: LocalProblem) -> Any:
        """The gradient of the parameters; with inner steps the problem itself."""
        return problem.grads(block, parameters) if self.steps == 1 else problem

    def update(self, contributions: Mapping[int, Any], check: bool = True) -> None:  # type: ignore[override]
        """One mini-batch: `steps` steps of the optimizer, given the blocks' gradients, or with inner steps their
        problems. check: whether to read the gradients and raise `Diverged` if they are too large for a step; then
        nothing changes."""
        if self.steps == 1:
            self.step(contributions, check)
            return
        first = {l: [p.clone() for p in self.theta[l]] for l in contributions}
        state = copy.deepcopy(self.optimizer.state_dict()) if check else {}
        problems = contributions
        try:
            for left in reversed(range(self.steps)):
                self.step(self.summed(problems), check)
                if left:
                    problems = {l: self.after(l, contributions[l], p, self.theta[l]) for l, p in first.items()}
        except Diverged:
            for l, kept in first.items():
                for p, before in zip(self.theta[l], kept, strict=True):
                    p.copy_(before)
            self.optimizer.load_state_dict(state)
            raise

    def summed(self, problems: Mapping[int, LocalProblem]) -> dict[int, Params]:
        """The gradients of the blocks, over all ranks."""
        total = BucketedSum(next(iter(problems.values())).context)
        grads = {l: total.add(problem.grads(self.chain.blocks[l], self.theta[l])) for l, problem in problems.items()}
        total.finish()
        return grads

    def after(self, l: int, problem: LocalProblem, old: Params, new: Params) -> LocalProblem:
        """A block's problem, measured with its old parameters, for new ones."""
        change, saved = _change(self.chain.blocks[l].core, old, new, problem.saved)
        return problem._replace(delta=problem.after(change), saved=saved)

    def step(self, grads: Mapping[int, Params], check: bool = True) -> None:
        """One step of the optimizer along these gradients. check: as in `update`."""
        self.set_gradients(grads, check)
        self.follow_gradients()

    def set_gradients(self, grads: Mapping[int, Params], check: bool = True) -> None:
        """Sets the gradient of every parameter that requires one. check: as in `update`."""
        for p, grad in self.of_parameters(grads):
            if p.requires_grad and grad.stride() != p.stride():  # fused kernels require the parameter's layout
                grad = torch.empty_like(p).copy_(grad)
            p.grad = grad if p.requires_grad else None
        if check and not can_follow(self.optimizer):
            raise Diverged("the weights' next value", "lower the learning rate, or give inputs of a smaller size")

    def of_parameters(self, grads: Mapping[int, Params]) -> Iterable[tuple[Tensor, Tensor]]:
        """The gradient of each parameter: the sum of those of all blocks that use it."""
        pairs = [pair for l, block in grads.items() for pair in zip(self.theta[l], block, strict=True)]
        if not self.chain.tied:
            return pairs
        total: dict[Tensor, Tensor] = {}
        for p, grad in pairs:
            total[p] = total[p] + grad if p in total else grad
        return total.items()

    def follow_gradients(self) -> None:
        """One step of the optimizer along the gradients that are set."""
        if self.clip_norm is not None:
            held = [p for group in self.optimizer.param_groups for p in group["params"]]
            torch.nn.utils.clip_grad_norm_(held, self.clip_norm)
        self.optimizer.step()
        if self.l1:
            l1 = self.l1 * (1 - getattr(self.optimizer, "found_inf", 0))
            for group in self.optimizer.param_groups:
                for p in group["params"]:
                    if p.ndim > 1 and p.requires_grad:
                        p.copy_(soft_threshold(p, group["lr"] * l1))

    @property
    def adam_alone(self) -> bool:
        """Whether an update is one step of Adam and nothing else."""
        hooked = self.optimizer._optimizer_step_pre_hooks or self.optimizer._optimizer_step_post_hooks
        more = self.steps > 1 or self.l1 or self.clip_norm is not None or hooked
        return type(self.optimizer) is FusedAdam and not more

    def why_not_captured(self) -> str:
        """Why a step cannot be captured as a CUDA graph; empty if it can: the optimizer must support `found_inf`, as
        torch's fused ones do."""
        fused = getattr(self.optimizer, "_step_supports_amp_scaling", False)
        return "" if fused else f"{type(self.optimizer).__name__} is captured if it is fused; give it fused=True"


def can_follow(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a step along the gradients leaves weights and squares of gradients finite."""
    for group in optimizer.param_groups:
        grads = [p.grad for p in group["params"] if p.grad is not None]
        if grads:
            norm = torch.stack(torch._foreach_norm(grads)).max().item()
            decay = group.get("weight_decay", 0.0)
            if decay:
                norm += decay * max(float(p.abs().max()) for p in group["params"] if p.numel())
            if not norm * max(1.0, group["lr"]) < LARGEST[grads[0].dtype]:
                return False
    return True


class FusedAdam(torch.optim.Adam):
    """torch's Adam and its fused kernel, without the bookkeeping that costs small nets more than the kernel does.

    State, options, hooks and schedulers are Adam's own, and so is `found_inf`: while this attribute is a tensor without
    dimensions that is 1, a step changes nothing.
    """

    _step_supports_amp_scaling = True  # torch sets this on the object, where a copy of it does not have it

    @torch.no_grad()
    def update(self) -> None:
        """One step."""
        found_inf = getattr(self, "found_inf", None)
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:  # everything is frozen
                continue
            states = [self.state[p] or self._begin(p, group) for p in params]  # those whose count is still 0 share it
            rows = [(s["exp_avg"], s["exp_avg_sq"], s["step"], p.grad) for p, s in zip(params, states, strict=True)]
            means, squares, steps, grads = map(list, zip(*rows, strict=True))
            for step in dict(zip(map(id, steps), steps, strict=True)).values():  # usually one count for all
                step += 1 if found_inf is None else 1 - found_inf
            kernel = torch._fused_adamw_ if group["decoupled_weight_decay"] else torch._fused_adam_
            kernel(
                params,
                grads,
                means,
                squares,
                [],
                steps,
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
                found_inf=found_inf,
            )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        for group in self.param_groups:  # parameters with the same count share it again
            shared: dict[float, Tensor] = {}
            for entry in filter(None, map(self.state.get, group["params"])):
                entry["step"] = shared.setdefault(float(entry["step"]), entry["step"])

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self._opt_called = True  # schedulers check this
        if self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks:
            _update_with_hooks(self)
        else:
            self.update()

    step.hooked = True  # type: ignore[attr-defined]  # otherwise torch wraps it in a profiler, as slow as the step

    def begin(self) -> None:
        """Creates the state of all parameters that are trained, as their first step would."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.requires_grad and not self.state[p]:
                    self._begin(p, group)

    def _begin(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        begun = [self.state[q]["step"] for q in group["params"] if self.state[q]]
        shared = begun[0] if begun and not begun[0].any() else torch.zeros((), dtype=torch.float32, device=p.device)
        self.state[p] = {
            "step": shared,
            "exp_avg": torch.zeros_like(p),
            "exp_avg_sq": torch.zeros_like(p),
        }
        return self.state[p]


@torch.optim.Optimizer.profile_hook_step
def _update_with_hooks(optimizer: FusedAdam) -> None:
    optimizer.update()


class LocalAdam(LocalOptimizer):
    """AM-Adam's rule: torch's Adam with its fused kernel. decoupled_weight_decay: that of AdamW."""

    def __init__(  # noqa: PLR0913  (the options of torch's Adam, and those of LocalOptimizer)
        self,
        lr: float | Sequence[float] = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        l1: float = 0.0,
        steps: int = 1,
        clip_norm: float | None = None,
        decay_biases: bool = True,
    ):
        if not isinstance(betas, Sequence) or isinstance(betas, str) or len(betas) != 2:
            raise TypeError(f"betas of LocalAdam are two numbers from 0 to below 1, given {betas!r}")
        for name, value in (("betas", betas[0]), ("betas", betas[1]), ("weight_decay", weight_decay)):
            demand("LocalAdam", name, value)
        demand("LocalAdam", "eps", eps, above=True)  # otherwise a gradient of zero would give NaN
        if max(betas) >= 1:
            raise ValueError(f"betas of LocalAdam are two numbers from 0 to below 1, given {betas!r}")
        options: dict[str, Any] = {"betas": betas, "eps": eps, "weight_decay": weight_decay}
        options["decoupled_weight_decay"] = decoupled_weight_decay
        super().__init__(partial(FusedAdam, **options, fused=True), lr, steps, l1, clip_norm, decay_biases)
        self.options = options


class LocalSGD(LocalOptimizer):
    """AM-SGD's rule: torch's SGD with its fused kernel."""

    def __init__(
        self,
        lr: float | Sequence[float] = 0.1,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        l1: float = 0.0,
        steps: int = 1,
        clip_norm: float | None = None,
        decay_biases: bool = True,
    ):
        demand("LocalSGD", "momentum", momentum)
        demand("LocalSGD", "weight_decay", weight_decay)
        options: dict[str, Any] = {"momentum": momentum, "weight_decay": weight_decay}
        super().__init__(partial(torch.optim.SGD, **options, fused=True), lr, steps, l1, clip_norm, decay_biases)
        self.options = options


def _change(core: Series, old: Params, new: Params, saved: list[Saved]) -> tuple[Tensor, list[Saved]]:
    """The change of the output under new parameters, without cancellation where it is linear in them; and the new
    `saved`."""
    if core.affine:
        return core.replay([b - a for a, b in zip(old, new, strict=True)], saved)[0], saved
    output, changed = core.replay(new, saved)
    return output - core.replay(old, saved)[0], changed
