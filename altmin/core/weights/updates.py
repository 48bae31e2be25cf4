"""The weights of a chain's blocks as a trainer updates them: their rules, the rules' states, and gathered
contributions."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from altmin.calculus.context import BucketedSum
from altmin.common.errors import Diverged
from altmin.common.state import all_finite, load_optimizer, matched, overwrite
from altmin.core.chain import Chain, Theta
from altmin.core.codes.problem import Problem
from altmin.core.weights.decay import undecayed
from altmin.core.weights.local import BoundOptimizer
from altmin.core.weights.rule import Change, Proposal, Schedulable, WeightRule, finite, write

SMALLER = "lower the learning rate, or give inputs of a smaller size"


class Group(NamedTuple):
    """Blocks with one rule and one learning rate, which may be None, and their parameters that are trained."""

    rule: WeightRule
    lr: float | None
    blocks: list[int]
    params: list[Tensor]


class Updates:
    """Binds rules to the blocks of a chain. states: by block. count: the number of updates so far. optimizer: what a
    learning-rate scheduler attaches to."""

    def __init__(self, rule: WeightRule, chain: Chain, theta: Theta):
        self.chain, self.theta = chain, theta
        self.rules = rule.assign(chain)
        self.owned = self._owned()
        spared = undecayed(chain.model)
        self.decayed = {l: [id(p) not in spared for p in self.own(l, theta[l])] for l in self.rules}
        self.states = {l: rule.init(chain.blocks[l], self.own(l, theta[l])) for l, rule in self.rules.items()}
        self.count = self.samples = 0
        self.gathered: dict[int, Any] = {}
        """By block: the sum of contributions times their numbers of samples."""
        self.prepared: list[Proposal] | None = None
        self.groups = self._grouped()
        self.kinds = max(rule.kinds for rule in self.rules.values())
        """The number of kinds of updates, see `WeightRule.kind`."""
        self.inner_steps = max(rule.inner_steps for rule in self.rules.values())
        """The number of updates on the same problem in each mini-batch."""
        own = [group.rule.optimizer for group in self.groups if isinstance(group.rule, BoundOptimizer)]
        rates = [{"params": group.params, "lr": group.lr} for group in self.groups if group.lr is not None]
        self.optimizer: Any = own[0] if own else Schedulable(rates)

    def _owned(self) -> dict[int, list[int]]:
        """Return, for blocks that share parameters with an earlier block, the places of those that they do not."""
        tied, seen, owned, rates = self.chain.tied, set[int](), {}, dict[int, Any]()
        for l, rule in self.rules.items() if tied else ():
            for p in (p for p in self.theta[l] if id(p) in tied):
                lr = rule.numbers(l).get("lr")
                if rates.setdefault(id(p), lr) != lr:
                    raise ValueError(
                        f"{tied[id(p)]!r} is used in blocks with the rates {rates[id(p)]} and {lr}; give these one rate"
                    )
            if type(rule).measure is not WeightRule.measure and any(id(p) in tied for p in self.theta[l]):
                self.chain.demand_untied(type(rule).__name__)
            own = [i for i, p in enumerate(self.theta[l]) if id(p) not in seen]
            if len(own) < len(self.theta[l]):
                owned[l] = own
            seen |= {id(p) for p in self.theta[l]}
        return owned

    def own(self, l: int, parts: Sequence[Any]) -> Sequence[Any]:
        """Return those of a block's parameters, or of what belongs to them, that no earlier block has."""
        return [parts[i] for i in self.owned[l]] if l in self.owned else parts

    def _grouped(self) -> list[Group]:
        """Return groups of blocks with one rule and one learning rate."""
        groups: dict[Any, Group] = {}
        for l, rule in self.rules.items():
            lr = rule.numbers(l).get("lr")
            group = groups.setdefault((id(rule), lr), Group(rule, lr, [], []))
            group.params.extend(p for p in self.own(l, self.theta[l]) if p.requires_grad)
            group.blocks.append(l)
        return sorted(groups.values(), key=lambda group: group.lr is None)  # as in the optimizer's groups

    def numbers(self) -> dict[int, dict[str, Any]]:
        """Return the numbers of every block's rule, with "lr" as a scheduler has it now."""
        found = {}
        for i, (rule, lr, blocks, _) in enumerate(self.groups):
            numbers = rule.numbers(blocks[0])
            if lr is not None and not isinstance(rule, BoundOptimizer):
                numbers["lr"] = self.optimizer.param_groups[i]["lr"]
            for l in blocks:
                found[l] = numbers
        return found

    def rates(self, numbers: Mapping[int, Any], samples: Any, kind: int) -> dict[int, dict[str, Any]]:
        """Return what `WeightRule.update` gets for every block."""
        found = {}
        for l, each in numbers.items():
            found[l] = {**each, "samples": samples, "kind": kind, "decayed": self.decayed[l]}
        return found

    def kind(self, step: int) -> int:
        """Return the kind of the step-th update, from 1."""
        return max([group.rule.kind(step) for group in self.groups]) if self.kinds > 1 else 0

    def is_trained(self, l: int) -> bool:
        """Return whether a parameter of block l requires a gradient."""
        return any(p.requires_grad for p in self.theta[l])

    def measure(self, l: int, p: Sequence[Tensor], problem: Problem) -> Any:
        """Return the contribution of block l with parameters p, with zeros as the gradients of frozen ones; None for a
        frozen block. If the rule takes several steps it is the problem itself."""
        trained = [q.requires_grad for q in self.theta[l]]
        if not any(trained):
            return None
        if self.rules[l].inner_steps > 1:
            return problem
        found = self.rules[l].measure(problem.block, p, problem)
        if not all(trained) and isinstance(found, list | tuple) and len(found) == len(trained):
            return [g if t else torch.zeros_like(g) for g, t in zip(found, trained, strict=True)]
        return found

    def untied(self, contributions: Mapping[int, Any]) -> dict[int, Any]:
        """Return contributions without None, in which the gradient of a parameter of several blocks is the sum of
        theirs, in the first block that has it."""
        found = {}
        for l, each in contributions.items():
            if each is not None:
                found[l] = each
        if not self.owned:
            return found
        totals: dict[int, Tensor] = {}
        for l, grads in found.items():
            for p, g in zip(self.theta[l], grads, strict=True):
                totals[id(p)] = totals[id(p)] + g if id(p) in totals else g
        return {l: [totals[id(p)] for p in self.own(l, self.theta[l])] for l in found}

    def changes(
        self, theta: Theta, states: Mapping[int, Any], contributions: Mapping[int, Any], rates: Mapping[int, Any]
    ) -> dict[int, Change]:
        """Return the changes of the blocks' own parameters, and the next states, as functions of tensors."""
        problems = {l: each for l, each in contributions.items() if isinstance(each, Problem)}
        found = self._after_steps(theta, states, problems, rates) if problems else {}
        others = self.untied({l: each for l, each in contributions.items() if l not in problems})
        for rule, blocks in self._by_rule(others):
            own = {l: self.own(l, theta[l]) for l in blocks}
            found |= rule.update_all(own, states, {l: others[l] for l in blocks}, rates)
        return found

    def _after_steps(
        self, theta: Theta, states: Mapping[int, Any], problems: Mapping[int, Problem], rates: Mapping[int, Any]
    ) -> dict[int, Change]:
        """Return what several updates on the same problems change."""
        new, after, present = dict(enumerate(theta)), dict(states), dict(problems)
        for step in range(max(self.rules[l].inner_steps for l in problems)):
            if step:
                present = {l: each.after(theta[l], new[l]) for l, each in problems.items()}
            grads = self._summed(present, new)
            whole = self.untied(grads)
            for rule, blocks in self._by_rule(whole):
                own = {l: self.own(l, new[l]) for l in blocks}
                for l, (changes, state) in rule.update_all(own, after, {l: whole[l] for l in blocks}, rates).items():
                    moved = {id(p): c for p, c in zip(self.own(l, self.theta[l]), changes, strict=True)}
                    new[l] = [q + moved.get(id(p), 0.0) for p, q in zip(self.theta[l], new[l], strict=True)]
                    after[l] = state
        return {
            l: ([b - a for a, b in zip(self.own(l, theta[l]), self.own(l, new[l]), strict=True)], after[l])
            for l in problems
        }

    def _summed(self, problems: Mapping[int, Problem], theta: Mapping[int, Any]) -> dict[int, Any]:
        """Return the contributions of problems, over all ranks."""
        total = BucketedSum(next(iter(problems.values())).context)
        each = {l: self.rules[l].measure(problem.block, theta[l], problem) for l, problem in problems.items()}
        grads = {l: total.add(found) for l, found in each.items()}
        total.finish()
        return grads

    def _by_rule(self, blocks: Mapping[int, Any]) -> list[tuple[WeightRule, Sequence[int]]]:
        """Return the rules of some blocks, each with its own."""
        rules: dict[int, tuple[WeightRule, list[int]]] = {}
        for l in blocks:
            rules.setdefault(id(self.rules[l]), (self.rules[l], []))[1].append(l)
        return list(rules.values())

    def propose(
        self, contributions: Mapping[int, Any], samples: Any, numbers: Mapping[int, Any] | None = None
    ) -> list[Proposal]:
        """Return the next update, as proposals of all rules. numbers: of the blocks' rules, None for the present
        ones."""
        rates = self.rates(self.numbers() if numbers is None else numbers, samples, self.kind(self.count + 1))
        with torch.autocast(self.theta[0][0].device.type, enabled=False):
            return self._proposed(contributions, rates)

    def _proposed(self, contributions: Mapping[int, Any], rates: Mapping[int, Any]) -> list[Proposal]:
        if self.inner_steps > 1:
            changes = self.changes(self.theta, self.states, contributions, rates)
            return [Proposal(finite(changes), lambda ok: self.write(changes, ok))]
        found, proposals = self.untied(contributions), []
        for rule, blocks in self._by_rule(found):
            theta, mine = {}, {}
            for l in blocks:
                theta[l], mine[l] = self.own(l, self.theta[l]), found[l]
            proposals.append(rule.propose(theta, self.states, mine, rates))
        return proposals

    def write(self, changes: Mapping[int, Change], ok: Tensor | None = None) -> None:
        """Apply what `changes` has returned, where ok."""
        write({l: self.own(l, self.theta[l]) for l in changes}, self.states, changes, ok)

    def update(self, contributions: Sequence[Any], samples: Any) -> None:
        """Take the step of one mini-batch, given the contribution of every block. `Diverged`, and nothing changes, if
        weights or state would not be finite."""
        self._apply(self._checked(dict(enumerate(contributions)), samples))

    def _checked(self, contributions: Mapping[int, Any], samples: Any) -> list[Proposal]:
        proposals = self.propose(contributions, samples)
        for each in proposals:
            if not bool(each.finite):
                raise Diverged("the weights' next value", SMALLER)
        return proposals

    def _apply(self, proposals: Sequence[Proposal]) -> None:
        for each in proposals:
            each.apply(None)
        torch.clear_autocast_cache()  # of rounded weights
        self.count += 1

    def gather(self, contributions: Sequence[Any], samples: int) -> None:
        """Add a part of a mini-batch; `apply` then makes the step of all parts. `Diverged`, and nothing is added, if it
        is not finite. None for blocks that are not gathered here."""
        mine = {l: each for l, each in enumerate(contributions) if each is not None}
        problems = {l: each for l, each in mine.items() if isinstance(each, Problem)}
        mine |= self._summed(problems, dict(enumerate(self.theta))) if problems else {}
        for l, each in mine.items():
            if not all(bool(all_finite(t)) for t in pytree.tree_leaves(each)):
                raise Diverged(f"the contribution of block {l}", SMALLER)
        for l, each in mine.items():
            scaled = pytree.tree_map(lambda t: t * samples, each)
            before = self.gathered.get(l)
            self.gathered[l] = scaled if before is None else pytree.tree_map(torch.add, before, scaled)
        self.samples += samples

    def prepare(self) -> None:
        """Compute the step from the gathered contributions, which are then dropped; `apply` takes it. No weight
        changes. `Diverged` if it would not be finite."""
        gathered, samples = self.gathered, self.samples
        self.forget()
        means = {l: pytree.tree_map(lambda t: t / samples, each) for l, each in gathered.items()}
        self.prepared = self._checked(means, samples)

    def apply(self) -> None:
        """Take the step from all contributions gathered since the last one. RuntimeError if there are none."""
        if self.gathered:
            self.prepare()
        if self.prepared is None:
            raise RuntimeError("nothing has been gathered to apply; call gather(x, y) first")
        prepared, self.prepared = self.prepared, None
        self._apply(prepared)

    def forget(self) -> None:
        """Drop what is gathered or prepared."""
        self.gathered, self.samples, self.prepared = {}, 0, None

    def why_not_captured(self) -> str:
        """Return why an update cannot be recorded; empty if it can."""
        return next((said for rule in self.rules.values() if (said := rule.why_not_captured())), "")

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all states."""
        return {
            "states": _copied(self.states),
            "gathered": _copied(self.gathered),
            "samples": self.samples,
            "count": self.count,
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from another's `state_dict`; one that does not fit is a ValueError, and nothing changes."""
        if set(state) != set(self.state_dict()) or not set(state["gathered"]) <= set(self.rules):
            raise ValueError(f"this is no state of the weights of {len(self.rules)} blocks: {state!r:.60}")
        states = matched(state["states"], self.states, "states of weights")
        load_optimizer(self.optimizer, state["optimizer"], "the optimizer of weights")
        overwrite(self.states, states)
        self.forget()
        self.gathered, self.samples, self.count = _copied(state["gathered"]), state["samples"], state["count"]


def _copied(tree: Any) -> Any:
    return pytree.tree_map(lambda t: t.detach().clone(), tree)
