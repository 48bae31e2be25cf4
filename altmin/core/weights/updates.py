"""The weights of a chain's blocks as a trainer updates them: their rules, the rules' states, and gathered
contributions."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from altmin.calculus.numbers import all_finite
from altmin.common.errors import Diverged, demand_unclaimed
from altmin.common.state import load_optimizer, matched, overwrite
from altmin.core.chain import Chain, Theta
from altmin.core.codes.links import LocalProblem
from altmin.core.weights.local import LocalOptimizer
from altmin.core.weights.rule import Rates, WeightRule

SMALLER = "give inputs of a smaller size"


class Proposal(NamedTuple):
    """An update of one block that has not been applied: the changes of its parameters, its rule's next state, and
    whether all of these are finite."""

    changes: Sequence[Tensor]
    state: Any
    finite: Tensor


class Updates:
    """Binds a rule to the blocks of a chain, once.

    states: for every block whose rule is not an optimizer. local: the optimizer rule of the other blocks, None
    if there are none.
    """

    def __init__(self, rule: WeightRule, chain: Chain, theta: Theta):
        demand_unclaimed(rule, "weight rule")
        self.rule: Any = rule
        self.chain, self.theta = chain, theta
        self.rules = rule.assign(chain)
        locals_ = {id(each): each for each in self.rules.values() if isinstance(each, LocalOptimizer)}
        if len(locals_) > 1:
            raise ValueError(f"{type(rule).__name__} assigns two optimizers to the blocks of a chain; one serves all")
        self.local: LocalOptimizer | None = next(iter(locals_.values()), None)
        if self.local is not None:
            self.local.attach(chain, [l for l, each in self.rules.items() if each is self.local])
        fitted = [l for l in self.rules if not self._is_local(l)]
        if any(id(p) in chain.tied for l in fitted for p in theta[l]):
            chain.demand_untied(type(rule).__name__)
        self.states = {l: self.rules[l].init(chain.blocks[l], theta[l]) for l in fitted}
        self.gathered: dict[int, Any] = {}
        """By block: the sum of contributions times their numbers of samples."""
        self.samples = 0
        self.count = 0
        """Of updates so far, for rules that keep something for several of them."""
        self.prepared: dict[int, Proposal] | None = None
        own = [p for l in self.states for p in theta[l] if p.requires_grad]
        self.rates_of = Rates(own, rule.lr) if own and hasattr(rule, "lr") and not locals_ else None
        rule.claimed = True

    def _is_local(self, l: int) -> bool:
        return self.rules[l] is self.local

    @property
    def optimizer(self) -> Any:
        """What a scheduler attaches to: the optimizer, or the rates of a rule without one."""
        return self.rates_of if self.local is None else self.local.optimizer

    @property
    def rates(self) -> dict[str, Any]:
        """The rates that `update` gets for rules without an optimizer; next to an optimizer a rule's own `lr` is
        unchanged."""
        if self.rates_of is not None:
            return {"lr": self.rates_of.param_groups[0]["lr"]}
        return {"lr": self.rule.lr} if self.states and hasattr(self.rule, "lr") else {}

    def is_due(self, count: int) -> bool:
        """Whether this update, counted from 1, is to compute again what rules keep for several of them."""
        return any(self.rules[l].is_due(count) for l in self.states)

    @property
    def refresh(self) -> bool:
        """Whether the next update is to do that."""
        return self.is_due(self.count + 1)

    @property
    def refreshes(self) -> bool:
        """Whether some updates do that and others do not."""
        return any(type(self.rules[l]).is_due is not WeightRule.is_due for l in self.states)

    def recount(self) -> None:
        """Reads from the states how many updates there were."""
        self.count = max((self.rules[l].steps_of(state) for l, state in self.states.items()), default=0)

    def measure(self, l: int, p: Sequence[Tensor], problem: LocalProblem) -> Any:
        """The contribution of block l with parameters p; None for a frozen block without an optimizer, whose state
        stays as it is. If the optimizer takes inner steps, it is the problem itself."""
        rule = self.rules[l]
        if rule is not self.local and not self.is_trained(l):
            return None
        return rule.measure(self.chain.blocks[l], p, problem)

    def is_trained(self, l: int) -> bool:
        """Whether a parameter of block l requires a gradient."""
        return any(p.requires_grad for p in self.theta[l])

    @property
    def inner_steps(self) -> int:
        """Steps of the optimizer on each block's problem."""
        return 1 if self.local is None else self.local.steps

    def propose(
        self,
        theta: Theta,
        states: Mapping[int, Any],
        contributions: Mapping[int, Any],
        samples: Any,
        rates: Mapping[str, Any],
        refresh: bool,
    ) -> dict[int, Proposal]:
        """The updates of the blocks without an optimizer; changes nothing."""
        found, given = {}, {**rates, "refresh": refresh}
        moving = [l for l in states if contributions.get(l) is not None]
        for rule in {id(self.rules[l]): self.rules[l] for l in moving}.values():
            mine = [l for l in moving if self.rules[l] is rule]
            p, held, new = ({l: each[l] for l in mine} for each in (theta, states, contributions))
            for l, (changes, state) in rule.update_all(p, held, new, samples, given).items():
                leaves = [t for t in pytree.tree_leaves((changes, state)) if isinstance(t, Tensor)]
                found[l] = Proposal(changes, state, _all_finite(leaves))
        return found

    def update(self, contributions: Sequence[Any], samples: Any) -> None:
        """The step of one mini-batch, given the contribution of every block. `Diverged`, and nothing changes, if
        weights or state would not be finite."""
        mine = dict(enumerate(contributions))
        proposals = self._proposed(mine, samples) if self.states else {}
        if self.local is not None:
            self.local.update(mine if len(self.local.blocks) == len(mine) else {l: mine[l] for l in self.local.blocks})
        if proposals:
            self.write(proposals)
        self.count += 1

    def _proposed(self, contributions: Mapping[int, Any], samples: Any) -> dict[int, Proposal]:
        proposals = self.propose(self.theta, self.states, contributions, samples, self.rates, self.refresh)
        for l, each in proposals.items():
            if not bool(each.finite):
                raise Diverged(f"the update of block {l} ({self.chain.blocks[l]})", SMALLER)
        return proposals

    def write(self, proposals: Mapping[int, Proposal], ok: Tensor | None = None) -> None:
        """Applies updates where ok. Tensors of the state are written in place."""
        for l, (changes, state, _) in proposals.items():
            for q, change in zip(self.theta[l], changes, strict=True):
                if q.requires_grad:
                    q.add_(change if ok is None else torch.where(ok, change, 0.0))
            overwrite(self.states[l], state, ok)

    def gather(self, contributions: Sequence[Any], samples: int) -> None:
        """Adds a part of a mini-batch; `apply` then makes the step of all parts. `Diverged`, and nothing is added, if
        it is not finite. None for blocks that are not gathered here."""
        mine = {l: each for l, each in enumerate(contributions) if each is not None}
        problems = {l: each for l, each in mine.items() if isinstance(each, LocalProblem)}
        if problems and self.local is not None:
            mine |= self.local.summed(problems)
        for l, each in mine.items():
            if not all(bool(all_finite(t)) for t in pytree.tree_leaves(each)):
                raise Diverged(f"the contribution of block {l}", SMALLER)
        for l, each in mine.items():
            scaled = pytree.tree_map(lambda t: t * samples, each)
            before = self.gathered.get(l)
            self.gathered[l] = scaled if before is None else pytree.tree_map(torch.add, before, scaled)
        self.samples += samples

    def prepare(self) -> None:
        """Computes the step from the gathered contributions, which are then dropped; `apply` takes it. No weight
        changes. `Diverged` if it would not be finite."""
        gathered, samples = self.gathered, self.samples
        self.forget()
        means = {l: pytree.tree_map(lambda t: t / samples, each) for l, each in gathered.items()}
        proposals = self._proposed(means, samples)
        if self.local is not None:
            self.local.set_gradients({l: means[l] for l in self.local.blocks if l in means})
        self.prepared = proposals

    def apply(self) -> None:
        """The step from all contributions gathered since the last one. RuntimeError if there are none."""
        if self.gathered:
            self.prepare()
        if self.prepared is None:
            raise RuntimeError("nothing has been gathered to apply; call gather(x, y) first")
        proposals, self.prepared = self.prepared, None
        if self.local is not None:
            self.local.follow_gradients()
        self.write(proposals)
        self.count += 1

    def forget(self) -> None:
        """Drops what is gathered or prepared."""
        self.gathered, self.samples, self.prepared = {}, 0, None

    def why_not_captured(self) -> str:
        """Why an update cannot be captured as a CUDA graph; empty if it can."""
        rules = {id(rule): rule for rule in self.rules.values()}
        return next((said for rule in rules.values() if (said := rule.why_not_captured())), "")

    def state_dict(self) -> dict[str, Any]:
        """Copies of all states."""
        return {
            "states": _copied(self.states),
            "gathered": _copied(self.gathered),
            "samples": self.samples,
            "optimizer": None if self.optimizer is None else self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from another's `state_dict`; one that does not fit is a ValueError, and nothing changes."""
        if set(state) != set(self.state_dict()) or not set(state["gathered"]) <= set(self.rules):
            raise ValueError(f"this is no state of the weights of {len(self.rules)} blocks: {state!r:.60}")
        states = matched(state["states"], self.states, "states of weights")
        if self.optimizer is not None:
            load_optimizer(self.optimizer, state["optimizer"], "the optimizer of weights")
        overwrite(self.states, states)
        self.recount()
        self.forget()
        self.gathered, self.samples = _copied(state["gathered"]), state["samples"]


def _all_finite(tensors: Sequence[Tensor]) -> Tensor:
    """Whether all entries are finite. Tensors of one shape are added first: fewer sums, which a compiler fuses."""
    totals: dict[Any, Tensor] = {}
    for t in tensors:
        totals[t.shape] = totals[t.shape] + t if t.shape in totals else t
    return all_finite(torch.stack([t.sum().to(tensors[0].dtype) for t in totals.values()]))


def _copied(tree: Any) -> Any:
    return pytree.tree_map(lambda t: t.detach().clone(), tree)
