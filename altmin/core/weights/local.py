"""The local weight rules: every block takes gradient steps on its own small problem (Algorithm 3, without memory).

The gradients are exact, local and in the loss's own scale; what is done with them is left to torch's optimizers, whose
options mean what they mean there. These act on each parameter by itself, so one optimizer over all blocks is the same
as one for each, and all blocks move at once.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from altmin.calculus import Params, Saved
from altmin.calculus.numbers import all_finite, eager
from altmin.calculus.ranks import Sums
from altmin.calculus.series import Series
from altmin.common.describe import describe
from altmin.common.errors import Diverged, demand, demand_switch, demand_unclaimed
from altmin.common.state import (
    check_optimizer,
    demand_blocks,
    demand_count,
    demand_entries,
    demand_tensor,
    load_optimizer,
)
from altmin.core.chain import Chain
from altmin.core.codes.above import Residual
from altmin.core.step import soft_threshold
from altmin.core.weights import sparse
from altmin.core.weights.decay import undecayed
from altmin.core.weights.fused_adam import FusedAdam

OptimizerFactory = Callable[[Iterable[Any]], torch.optim.Optimizer]
LARGEST = {torch.float32: 1e18, torch.float64: 1e150, torch.float16: 1e2, torch.bfloat16: 1e18}
"""Of a gradient: beyond, its square or a step along it may not be finite."""


class Gathered(NamedTuple):
    """Of one block: the gradients of parts of a mini-batch, weighted by their samples, and how many these were."""

    grads: list[Tensor]
    samples: int

    def plus(self, grads: Params, samples: int) -> "Gathered":
        """Itself and the gradients of one more part, written over itself."""
        both = zip(self.grads, grads, strict=True)
        summed = [a + g * samples if a.is_sparse else a.add_(g, alpha=samples) for a, g in both]
        return Gathered(summed, self.samples + samples)

    def __add__(self, other: "Gathered") -> "Gathered":  # type: ignore[override]
        return Gathered([a + b for a, b in zip(self.grads, other.grads, strict=True)], self.samples + other.samples)


class LocalOptimizer:
    """Any torch optimizer on the local problems.

    factory: groups of parameters -> optimizer. lr: one for all blocks, or a sequence with one for each. steps: inner
    steps per mini-batch. l1: weight of |W|_1, by a proximal step after each; biases are spared. clip_norm: the largest
    norm of all gradients together, as `torch.nn.utils.clip_grad_norm_` has it; None for no limit. decay_biases: whether
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
        demand_switch(of, "decay_biases", decay_biases)
        self.factory, self.lr, self.steps, self.l1 = factory, lr, steps, l1
        self.clip_norm, self.decay_biases = clip_norm, decay_biases
        self.options: dict[str, Any] = {"factory": factory}
        """Those of the optimizer, for `repr`."""
        self.gathered: dict[int, Gathered] = {}
        self.prepared = False
        """Whether gradients are set that `apply` has not followed yet."""

    def __repr__(self) -> str:
        options = {"lr": self.lr, **self.options, "l1": self.l1, "steps": self.steps}
        options |= {"clip_norm": self.clip_norm, "decay_biases": self.decay_biases}
        return f"{type(self).__name__}({', '.join(f'{name}={describe(value)}' for name, value in options.items())})"

    def bind(self, chain: Chain, blocks: Sequence[int]) -> None:
        """Takes charge of the given blocks of a chain, once."""
        demand_unclaimed(self, "weight rule")
        self.chain, self.theta, self.blocks = chain, chain.parameters(), tuple(blocks)
        rates = list(self.lr) if isinstance(self.lr, Sequence) else [self.lr] * len(blocks)
        if len(rates) != len(blocks):
            raise ValueError(f"lr has {len(rates)} entries for {len(blocks)} blocks; give one for each, or one for all")
        self.tables = {id(p) for p in sparse.tables(chain.model)}
        """Parameters with sparse gradients, by id."""
        spared = set() if self.decay_biases else undecayed(chain.model)
        groups: dict[tuple[float, bool, bool], list[Tensor]] = {}
        for l, rate in zip(blocks, rates, strict=True):
            for p in self.theta[l]:
                groups.setdefault((rate, id(p) in self.tables, id(p) in spared), []).append(p)
        kept = [
            # no fused kernel takes the gradients of tables
            {
                "params": group,
                "lr": rate,
                **({"fused": False} if table else {}),
                **({"weight_decay": 0.0} if bare else {}),
            }
            for (rate, table, bare), group in groups.items()
        ]
        self.optimizer = self.factory(kept or [{"params": [torch.zeros(0, requires_grad=True)], "lr": 0.0}])
        if not isinstance(self.optimizer, torch.optim.Optimizer) or isinstance(self.optimizer, torch.optim.LBFGS):
            raise TypeError(
                f"the factory of {type(self).__name__} makes a torch optimizer that steps along gradients, such as "
                f"torch.optim.AdamW, given {type(self.optimizer).__name__}"
            )
        sparse.check_optimizer(self.optimizer, self.tables, self.l1, type(self).__name__)
        self.claimed = True

    def measure(self, l: int, p: Params, residual: Residual) -> Any:
        """What `update` needs of block l with parameters p: their gradients; with inner steps the residual itself."""
        return residual if self.steps > 1 else self.grads(l, p, residual)

    def grads(self, l: int, p: Params, residual: Residual) -> Params:
        if residual.grads is not None:
            return residual.grads
        return self.chain.blocks[l].core.grads(p, residual.saved, residual.delta)

    def update(self, found: Sequence[Any]) -> None:
        """One mini-batch: `steps` steps on each block's problem. found: of each block what `measure` gave.

        `Diverged`, and nothing changes, if the weights would not be finite."""
        if self.steps == 1:
            self.step({l: found[l] for l in self.blocks})
            return
        first = {l: [p.clone() for p in self.theta[l]] for l in self.blocks}
        state = copy.deepcopy(self.optimizer.state_dict()) if eager() else None
        residuals = {l: found[l] for l in self.blocks}
        try:
            for left in reversed(range(self.steps)):
                self.step(self._summed(residuals))
                if left:
                    residuals = {l: self.after(l, found[l], p, self.theta[l]) for l, p in first.items()}
        except Diverged:
            for l, kept in first.items():
                for p, before in zip(self.theta[l], kept, strict=True):
                    p.copy_(before)
            if state is not None:
                load_optimizer(self.optimizer, state, shared_steps=True)
            raise

    def _summed(self, residuals: Mapping[int, Residual]) -> dict[int, Params]:
        """The gradients of the blocks, over all ranks."""
        sums = Sums()
        grads = {l: sums.add(self.grads(l, self.theta[l], residual)) for l, residual in residuals.items()}
        sums.finish()
        return grads

    def after(self, l: int, residual: Residual, old: Params, new: Params) -> Residual:
        """A block's residual, measured with its old parameters, for new ones."""
        change, saved = _change(self.chain.blocks[l].core, old, new, residual.saved)
        return residual._replace(delta=residual.after(change), saved=saved, grads=None)

    def gather(self, found: Sequence[Any], samples: int) -> None:
        """Adds a part of a mini-batch too large to hold; `apply` then makes one step for the whole. `Diverged`, and
        nothing is added, if its gradients are not finite. found: None for blocks that are not gathered here."""
        residuals = {l: found[l] for l in self.blocks if isinstance(found[l], Residual)}
        grads = {l: found[l] for l in self.blocks if found[l] is not None}
        if residuals:
            grads |= self._summed(residuals)
        for l in grads:
            if not all(all_finite(sparse.entries(g)) for g in grads[l]):
                raise Diverged(f"the gradient of block {l}", "give inputs of a smaller size")
        for l, each in grads.items():
            if l in self.gathered:
                self.gathered[l] = self.gathered[l].plus(each, samples)
            else:
                self.gathered[l] = Gathered([g * samples for g in each], samples)

    def prepare(self) -> None:
        """Sets the gradients of what has been gathered, which is then forgotten; `apply` follows them. No weight moves.
        `Diverged` if they are too large to be followed."""
        gathered, self.gathered = self.gathered, {}
        self.set_gradients({l: [g / each.samples for g in each.grads] for l, each in gathered.items()})
        self.prepared = bool(gathered)

    def apply(self) -> None:
        """The step of everything gathered since the last one."""
        if self.gathered:
            self.prepare()
        if self.blocks and not self.prepared:
            raise RuntimeError("nothing has been gathered to apply; call gather(x, y) first")
        self.prepared = False
        self.follow_gradients()

    def step(self, grads: dict[int, Params]) -> None:
        """One step of the optimizer along these gradients. `Diverged`, and nothing changes, if they are too large."""
        self.set_gradients(grads)
        self.follow_gradients()

    def set_gradients(self, grads: Mapping[int, Params]) -> None:
        """Sets the gradient of every parameter that requires one. `Diverged` if they are too large to be followed."""
        for l, block in grads.items():
            for p, grad in zip(self.theta[l], block, strict=True):
                p.grad = None if not p.requires_grad else sparse.as_gradient(grad, p, id(p) in self.tables)
        if eager() and not self._can_follow():
            raise Diverged("the weights' next value", "lower the learning rate, or give inputs of a smaller size")

    def follow_gradients(self) -> None:
        """One step of the optimizer along the gradients that are set."""
        if self.clip_norm is not None:
            held = [p for group in self.optimizer.param_groups for p in group["params"]]
            sparse.clip([p.grad for p in held if p.grad is not None], self.clip_norm)
        self.optimizer.step()
        if self.l1:
            l1 = self.l1 * (1 - getattr(self.optimizer, "found_inf", 0))
            for group in self.optimizer.param_groups:
                for p in group["params"]:
                    if p.ndim > 1 and p.requires_grad:
                        p.copy_(soft_threshold(p, group["lr"] * l1))

    def _can_follow(self) -> bool:
        """Whether a step along the gradients leaves weights and squares of gradients finite."""
        for group in self.optimizer.param_groups:
            grads = [sparse.entries(p.grad) for p in group["params"] if p.grad is not None]
            if grads:
                norm = torch.stack(torch._foreach_norm(grads)).max().item()
                decay = group.get("weight_decay", 0.0)
                if decay:
                    norm += decay * max(float(p.abs().max()) for p in group["params"] if p.numel())
                if not norm * max(1.0, group["lr"]) < LARGEST[grads[0].dtype]:
                    return False
        return True

    @property
    def takes_gradients(self) -> bool:
        """Whether `update` needs of every block its gradients and nothing else."""
        return self.steps == 1

    @property
    def adam_alone(self) -> bool:
        """Whether an update is one step of Adam and nothing else."""
        hooked = self.optimizer._optimizer_step_pre_hooks or self.optimizer._optimizer_step_post_hooks
        more = self.steps > 1 or self.l1 or self.clip_norm is not None or hooked
        return type(self.optimizer) is FusedAdam and not more

    def allocate(self) -> None:
        """Makes everything that an update changes besides what the optimizer has: nothing."""

    def tensors(self) -> list[Tensor]:
        """What `allocate` has made."""
        return []

    def propose(self, found: Sequence[Any]) -> tuple[Any, Any]:
        """What `take` needs for an update, and whether all of it is finite, as far as it is known; changes nothing."""
        return found, True

    def take(self, proposed: Any, ok: Tensor | None = None) -> None:
        """The update, where ok, of which the optimizer has been told by itself (`found_inf`)."""
        self.update(proposed)

    def why_not_captured(self) -> str:
        """Why a step cannot be captured as a CUDA graph; empty if it can: the optimizer must know how to change nothing
        where a tensor says so, as torch's fused ones do."""
        if self.tables:
            return f"{sparse.ROWS_ARE_COUNTED}; {sparse.NOT_SPARSE}"
        fused = getattr(self.optimizer, "_step_supports_amp_scaling", False)
        return "" if fused else f"{type(self.optimizer).__name__} is captured if it is fused; give it fused=True"

    def state_dict(self) -> dict[str, Any]:
        gathered = {  # copies, as they are written to
            l: {"grads": [g.clone() for g in each.grads], "samples": each.samples} for l, each in self.gathered.items()
        }
        return {"optimizer": self.optimizer.state_dict(), "gathered": gathered}

    def check_state(self, state: Any) -> None:
        """ValueError unless `load_state_dict` can take the state: then it takes all of it."""
        demand_entries(state, ("optimizer", "gathered"), f"a {type(self).__name__}")
        check_optimizer(self.optimizer, state["optimizer"], complete=True, tables=self.tables)
        for l, part in demand_blocks(state["gathered"], self.blocks, "gathered gradients").items():
            demand_entries(part, Gathered._fields, f"the gradients of block {l}")
            demand_count(part["samples"], f"the number of samples gathered for block {l}", 1)
            if len(part["grads"]) != len(self.theta[l]):
                raise ValueError(f"block {l} has {len(self.theta[l])} gradients, the state {len(part['grads'])}")
            for i, (grad, p) in enumerate(zip(part["grads"], self.theta[l], strict=True)):
                demand_tensor(grad, p, f"gradient {i} of block {l}", sparse=id(p) in self.tables)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.check_state(state)
        load_optimizer(self.optimizer, state["optimizer"], shared_steps=isinstance(self.optimizer, FusedAdam))
        self.gathered = {
            int(l): Gathered([g.to(self.theta[int(l)][0].device, copy=True) for g in part["grads"]], part["samples"])
            for l, part in state["gathered"].items()
        }


class LocalAdam(LocalOptimizer):
    """AM-Adam's rule: torch's Adam with its fused kernel. decoupled_weight_decay: that of AdamW."""

    def __init__(
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
        demand("LocalAdam", "eps", eps, above=True)  # or a gradient of zero would give no number
        demand_switch("LocalAdam", "decoupled_weight_decay", decoupled_weight_decay)
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
    """How new parameters change the output, without cancellation where it is linear in them; and what is saved then."""
    if core.affine:
        return core.replay([b - a for a, b in zip(old, new, strict=True)], saved)[0], saved
    output, changed = core.replay(new, saved)
    return output - core.replay(old, saved)[0], changed
