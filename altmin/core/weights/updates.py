"""The weights of a chain's blocks as a trainer updates them: their rules, the rules' states, and gathered
contributions."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from altmin.calculus.context import BucketedSum
from altmin.common.errors import Diverged, shown
from altmin.common.state import all_finite, load_optimizer, matched, overwrite
from altmin.core.chain import Chain, Theta
from altmin.core.codes.problem import Problem
from altmin.core.weights.decay import undecayed
from altmin.core.weights.local import BoundOptimizer
from altmin.core.weights.rule import ByBlock, Change, Proposal, Schedulable, WeightRule, changes_of, finite, write

SMALLER = "lower the learning rate, or give inputs of a smaller size"
Problems = Mapping[int, Problem]


class Updates:
    """Rules of the blocks of a chain. states: by block. count: the number of updates so far. optimizer: what a
    learning-rate scheduler attaches to."""

    def __init__(self, rule: WeightRule, chain: Chain, theta: Theta):
        self.chain, self.theta = chain, theta
        self.rules = rule.assign(chain)
        self.owned = self._owned()
        spared = undecayed(chain.model)
        self.decayed = {l: [id(p) not in spared for p in self.own(l, theta[l])] for l in self.rules}
        self.states = {l: rule.init(chain.blocks[l], self.own(l, theta[l])) for l, rule in self.rules.items()}
        for l, state in self.states.items():
            if not all(isinstance(t, Tensor) for t in pytree.tree_leaves(state)):
                raise TypeError(
                    f"init of {type(self.rules[l]).__name__} returns tensors in lists, tuples and dicts, given "
                    f"{shown(state)}; write a number as torch.tensor(0.0), and no state as ()"
                )
        self.count = self.samples = 0
        self.gathered: dict[int, Any] = {}
        """Sum by block of contributions times their numbers of samples."""
        self.prepared: Proposal | None = None
        self.by_rule = [
            (rule, [l for l in self.rules if self.rules[l] is rule]) for rule in dict.fromkeys(self.rules.values())
        ]
        self.scheduled = [(rule, blocks) for rule, blocks in self.by_rule if "lr" in rule.numbers()]
        """Rules with a learning rate, in the order of the optimizer's groups, and their blocks."""
        self.kinds = max(rule.kinds for rule in self.rules.values())
        """The number of kinds of updates, see `WeightRule.kind`."""
        self.inner_steps = max(rule.inner_steps for rule in self.rules.values())
        """The number of updates on the same problems in each mini-batch."""
        bound = [rule.optimizer for rule, _ in self.by_rule if isinstance(rule, BoundOptimizer)]
        groups = [
            {
                "params": [p for l in blocks for p in self.own(l, theta[l]) if p.requires_grad],
                "lr": rule.numbers()["lr"],
            }
            for rule, blocks in self.scheduled
        ]
        self.optimizer: Any = bound[0] if bound else Schedulable(groups)

    def _owned(self) -> dict[int, list[int]]:
        """Return, for blocks that share parameters with an earlier block, the places of those that they do not."""
        tied, seen, owned = self.chain.tied, set[int](), {}
        for l, rule in self.rules.items() if tied else ():
            if type(rule).measure is not WeightRule.measure and any(id(p) in tied for p in self.theta[l]):
                self.chain.demand_untied(type(rule).__name__)
            places = [i for i, p in enumerate(self.theta[l]) if id(p) not in seen]
            if len(places) < len(self.theta[l]):
                owned[l] = places
            seen |= {id(p) for p in self.theta[l]}
        return owned

    def own(self, l: int, parts: Sequence[Any]) -> Sequence[Any]:
        """Return the parts that belong to a block's parameters which no earlier block has."""
        return [parts[i] for i in self.owned[l]] if l in self.owned else parts

    def numbers(self) -> dict[int, dict[str, Any]]:
        """Return the numbers of every block's rule, with "lr" as a scheduler has it now."""
        numbers: dict[int, dict[str, Any]] = {}
        groups = iter(self.optimizer.param_groups)
        for rule, blocks in self.by_rule:
            present = rule.numbers()
            if "lr" in present:
                present["lr"] = next(groups)["lr"]
            numbers.update(dict.fromkeys(blocks, present))
        return numbers

    def rates(self, samples: Any, kind: int, numbers: ByBlock | None = None) -> dict[int, dict[str, Any]]:
        """Return what `WeightRule.update` gets for every block. numbers: of the rules, None for the present ones."""
        rates = {}
        for l, options in (self.numbers() if numbers is None else numbers).items():
            rates[l] = {**options, "samples": samples, "kind": kind, "decayed": self.decayed[l]}
        return rates

    def kind(self, step: int) -> int:
        """Return the kind of the step-th update, from 1."""
        return max([rule.kind(step) for rule, _ in self.by_rule]) if self.kinds > 1 else 0

    def measure(
        self, theta: Any, problems: Problems, total: BucketedSum | None = None, kind: int | None = None
    ) -> dict[int, Any]:
        """Return the contributions of the blocks that are trained, by number, with zeros as the gradients of frozen
        parameters. total: what sums them over ranks, those of upper blocks while lower ones are computed. kind: of the
        update, None for that of the next one."""
        contributions = {}
        kind = self.kind(self.count + 1) if kind is None else kind
        for l in sorted(problems, reverse=True):
            frozen = 0
            for p in self.theta[l]:
                frozen += not p.requires_grad
            if frozen == len(self.theta[l]):
                continue
            measured = self.rules[l].measure(problems[l].block, theta[l], problems[l], kind)
            if frozen and isinstance(measured, list | tuple) and len(measured) == len(self.theta[l]):
                pairs = zip(measured, self.theta[l], strict=True)
                measured = [g if p.requires_grad else torch.zeros_like(g) for g, p in pairs]
            contributions[l] = measured if total is None else total.add(measured)
        return contributions

    def untied(self, contributions: ByBlock) -> ByBlock:
        """Return contributions in which the gradient of a parameter of several blocks is the sum of theirs, in the
        first block that has it."""
        if not self.owned:
            return contributions
        totals: dict[int, Tensor] = {}
        for l, grads in contributions.items():
            for p, g in zip(self.theta[l], grads, strict=True):
                totals[id(p)] = totals[id(p)] + g if id(p) in totals else g
        return {l: [totals[id(p)] for p in self.own(l, self.theta[l])] for l in contributions}

    def changes(
        self, theta: Theta, states: ByBlock, contributions: ByBlock, rates: ByBlock, problems: Problems
    ) -> dict[int, Change]:
        """Return the changes of the blocks' own parameters, and the next states, as functions of tensors. problems:
        those of the contributions, on which rules with several inner steps take the others."""
        changes = self._changes(theta, states, contributions, rates)
        for step in range(1, self.inner_steps):
            blocks = [l for l in contributions if self.rules[l].inner_steps > step]
            if not blocks:
                break
            new, after = self._moved(theta, changes), {**states, **{l: state for l, (_, state) in changes.items()}}
            rest = {l: problems[l].after(theta[l], new[l]) for l in blocks}
            total = BucketedSum(rest[blocks[0]].context)
            measured = self.measure(new, rest, total, rates[blocks[0]]["kind"])
            total.finish()
            for l, (more, state) in self._changes(new, after, measured, rates).items():
                changes[l] = [a + b for a, b in zip(changes[l][0], more, strict=True)], state
        return changes

    def _changes(self, theta: Theta, states: ByBlock, contributions: ByBlock, rates: ByBlock) -> dict[int, Change]:
        """Return the changes by one update of every rule."""
        changes: dict[int, Change] = {}
        untied = self.untied(contributions)
        for rule, blocks in self.by_rule:
            if part := {l: untied[l] for l in blocks if l in untied}:
                changes |= changes_of(rule, {l: self.own(l, theta[l]) for l in part}, states, part, rates)
        return changes

    def _moved(self, theta: Theta, changes: Mapping[int, Change]) -> list[list[Tensor]]:
        """Return the parameters of all blocks after changes of their own ones."""
        rows = [(self.own(l, self.theta[l]), moves) for l, (moves, _) in changes.items()]
        moves = {id(p): move for params, block_moves in rows for p, move in zip(params, block_moves, strict=True)}
        blocks = zip(self.theta, theta, strict=True)
        return [[q + moves.get(id(p), 0.0) for p, q in zip(params, old, strict=True)] for params, old in blocks]

    def propose(
        self,
        contributions: ByBlock,
        samples: Any,
        problems: Problems,
        numbers: ByBlock | None = None,
        kind: int | None = None,
    ) -> Proposal:
        """Return the next update; arguments as in `changes` and `rates`, and the kind None for that of the next one."""
        rates = self.rates(samples, self.kind(self.count + 1) if kind is None else kind, numbers)
        with torch.autocast(self.theta[0][0].device.type, enabled=False):
            if self.inner_steps > 1 and problems and contributions:
                changes = self.changes(self.theta, self.states, contributions, rates, problems)
                return Proposal(finite(changes), partial(self.write, changes))
            untied = self.untied(contributions) if self.owned else contributions
            theta = dict(enumerate(self.theta))
            proposals: list[Proposal] = []
            for l in self.owned:
                theta[l] = self.own(l, theta[l])
            for rule, blocks in self.by_rule:
                if part := {l: untied[l] for l in blocks if l in untied}:
                    proposals.append(rule.propose(theta, self.states, part, rates))
        if len(proposals) == 1:
            return proposals[0]

        def apply(ok: Tensor | None) -> None:
            for proposal in proposals:
                proposal.apply(ok)

        return Proposal(torch.stack([proposal.finite for proposal in proposals] or [torch.tensor(True)]).all(), apply)

    def demand_pure(self, contributions: ByBlock, samples: Any, problems: Problems) -> None:
        """Raise ValueError if a rule writes into parameters or states where it is to return changes. Takes no step."""
        tensors = pytree.tree_leaves((self.theta, self.states))
        before = [t._version for t in tensors]
        self.propose(contributions, samples, problems)
        if [t._version for t in tensors] != before:
            names = ", ".join(sorted({type(rule).__name__ for rule, _ in self.by_rule}))
            raise ValueError(
                f"the weight rule {names} writes in place into its parameters or state; let update return the changes "
                "and the next state as new tensors (w + v, not w.add_(v)), and build model and trainer anew"
            )

    def write(self, changes: Mapping[int, Change], ok: Tensor | None = None) -> None:
        """Apply what `changes` has returned, where ok."""
        write({l: self.own(l, self.theta[l]) for l in changes}, self.states, changes, ok)

    def next(self, contributions: ByBlock, samples: Any, problems: Problems) -> Proposal:
        """Return the step of one mini-batch, for `take`. `Diverged` if weights or state would not be finite."""
        proposal = self.propose(contributions, samples, problems)
        if not proposal.finite:
            raise Diverged("the weights' next value", SMALLER)
        return proposal

    def take(self, proposal: Proposal) -> None:
        """Take a step that `next` has returned."""
        proposal.apply(None)
        torch.clear_autocast_cache()  # of rounded weights
        self.count += 1

    def gather(self, contributions: ByBlock, samples: int) -> None:
        """Add a part of a mini-batch; `apply` then makes the step of all parts. `Diverged`, and nothing is added, if it
        is not finite."""
        for l, contribution in contributions.items():
            if not all(bool(all_finite(torch.as_tensor(t))) for t in pytree.tree_leaves(contribution)):
                raise Diverged(f"the contribution of block {l}", SMALLER)
        for l, contribution in contributions.items():
            scaled = pytree.tree_map(lambda t: t * samples, contribution)
            before = self.gathered.get(l)
            self.gathered[l] = scaled if before is None else pytree.tree_map(torch.add, before, scaled)
        self.samples += samples

    def prepare(self) -> None:
        """Compute the step from the gathered contributions, which are then dropped; `apply` takes it. No weight
        changes. `Diverged` if it would not be finite."""
        gathered, samples = self.gathered, self.samples
        self.forget()
        means = {l: pytree.tree_map(lambda t: t / samples, contribution) for l, contribution in gathered.items()}
        self.prepared = self.next(means, samples, {})

    def apply(self) -> None:
        """Take the step from all contributions gathered since the last one. RuntimeError if there are none."""
        if self.gathered:
            self.prepare()
        if self.prepared is None:
            raise RuntimeError("nothing has been gathered to apply; call gather(x, y) first")
        prepared, self.prepared = self.prepared, None
        self.take(prepared)

    def forget(self) -> None:
        """Drop what is gathered or prepared."""
        self.gathered, self.samples, self.prepared = {}, 0, None

    def why_not_captured(self) -> str:
        """Return why an update cannot be recorded; empty if it can."""
        return next((reason for rule in self.rules.values() if (reason := rule.why_not_captured())), "")

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
        """Load another's `state_dict`; one that does not fit is a ValueError, and nothing changes."""
        if set(state) != set(self.state_dict()) or not set(state["gathered"]) <= set(self.rules):
            raise ValueError(f"this is no state of the weights of {len(self.rules)} blocks: {state!r:.60}")
        states = matched(state["states"], self.states, "states of weights")
        load_optimizer(self.optimizer, state["optimizer"], "the optimizer of weights")
        overwrite(self.states, states)
        self.forget()
        self.gathered, self.samples, self.count = _copied(state["gathered"]), state["samples"], state["count"]


def _copied(tree: Any) -> Any:
    return pytree.tree_map_only(Tensor, lambda t: t.detach().clone(), tree)
