"""The interface of weight rules: how the weights of one block follow its code, as functions without side effects."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from altmin.calculus import Params
from altmin.common.describe import describe
from altmin.common.state import all_finite, overwrite
from altmin.core.chain import Block, Chain
from altmin.core.codes.problem import Problem

State = Any
"""Tensors in lists, tuples and dicts: the state of a rule for one block."""
Contribution = Any
"""Tensors in lists, tuples and dicts: the contribution of one mini-batch to one block, as means over samples."""
ByBlock = Mapping[int, Any]
"""Values of several blocks, by number."""
Rates = Mapping[str, Any]
"""The numbers of an update, see `WeightRule.update`."""
Change = tuple[Sequence[Tensor], State]
"""The changes of a block's parameters, and the next state."""


class Proposal(NamedTuple):
    """An update that has not been applied. finite: whether it would leave finite numbers, a tensor without dimensions.
    apply(ok) applies it in place: all of it, or nothing unless ok, a tensor or None."""

    finite: Tensor
    apply: Callable[[Tensor | None], None]


class WeightRule:
    """A rule has three functions; trainers, ensembles, recorded steps and ranks call these and nothing else.

        init(block, parameters) -> state
        measure(block, parameters, problem, kind) -> contribution
        update(parameters, state, contribution, rates) -> (changes, state)

    A contribution is a mean over the samples of a mini-batch, as the gradient of its loss is: those of ranks are added,
    those of parts of a mini-batch, of sites or of a whole data set are averaged, weighted by their samples. State and
    contribution are tensors in lists, tuples and dicts of the same form at every step, a contribution at every step of
    a kind; floats in it are the same on all ranks. None of the functions changes
    its arguments or reads a number from a tensor. Runners keep, save and load the state, add the changes to the
    parameters, and check that both are finite.

    inner_steps: the number of updates on the same problem in each mini-batch. kinds: that of kinds of updates (`kind`).
    """

    inner_steps = 1
    kinds = 1

    def __repr__(self) -> str:
        """Return the settings, by which runs and sites are distinguished."""
        options = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return f"{type(self).__name__}({', '.join(f'{name}={describe(value)}' for name, value in options.items())})"

    def assign(self, chain: Chain) -> dict[int, "WeightRule"]:
        """Return the rule of every block, by its number: this one."""
        return dict.fromkeys(range(len(chain)), self)

    def numbers(self) -> dict[str, float]:
        """Return the numbers of updates which may differ between the members of an ensemble; "lr" is what a
        scheduler moves. Here the attribute `lr`, if there is one."""
        return {"lr": self.lr} if hasattr(self, "lr") else {}

    def kind(self, step: int) -> int:
        """Return the kind of the step-th update, from 1: a recorded step has a program for each. Here there is one."""
        return 0

    def init(self, block: Block, parameters: Params) -> State:
        """Return the state before the first mini-batch."""
        return ()

    def measure(self, block: Block, parameters: Params, problem: Problem, kind: int = 0) -> Contribution:
        """Return what `update` needs of a block's problem in an update of this `kind`: here the gradient of its
        parameters, with samples weighted."""
        r, maps, saved = problem.delta, block.core.maps, problem.saved
        if problem.context.weights is not None:
            r = problem.context.weighted(r)
        return maps[0].grads(parameters, saved[0], r) if len(maps) == 1 else block.core.grads(parameters, saved, r)

    def update(self, parameters: Params, state: State, contribution: Contribution, rates: Rates) -> Change:
        """Return the changes of the parameters and the next state. rates: `numbers`, with "lr" as a scheduler has it
        now; "samples", over which the contribution is the mean; "kind", of the update; "decayed", for each parameter
        whether it is a weight matrix."""
        raise NotImplementedError(f"{type(self).__name__} has no update")

    def update_all(self, theta: ByBlock, states: ByBlock, contributions: ByBlock, rates: ByBlock) -> dict[int, Change]:
        """Return `update` of several blocks, by their numbers: for a rule that does something for all of them at
        once."""
        return {l: self.update(theta[l], states[l], contributions[l], rates[l]) for l in contributions}

    def propose(self, theta: ByBlock, states: ByBlock, contributions: ByBlock, rates: ByBlock) -> Proposal:
        """Return the update of several blocks; here that of `update_all`. A rule with a kernel that works in place
        calls it in `Proposal.apply`."""
        changes = changes_of(self, theta, states, contributions, rates)
        return Proposal(finite(changes), lambda ok: write(theta, states, changes, ok))

    def why_not_captured(self) -> str:
        """Return why updates cannot be recorded or be those of an ensemble; empty if they can."""
        return ""


def changes_of(
    rule: WeightRule, theta: ByBlock, states: ByBlock, contributions: ByBlock, rates: ByBlock
) -> dict[int, Change]:
    """Return `update_all` of a rule. ValueError unless changes have the shapes of the parameters, and states the form
    of those before; and for a number that `rates` lacks."""
    name = type(rule).__name__
    try:
        changes = rule.update_all(theta, states, contributions, rates)
    except KeyError as error:
        has = ", ".join(next(iter(rates.values())))
        lacks = f"update of {name} lacks {error}, and rates has {has}"
        raise ValueError(f"{lacks}; give the rule the attribute lr, or its numbers by numbers()") from error
    for l, change in changes.items():
        before = [*theta[l]], states[l]
        if not _is_like(change, before):
            shapes = [pytree.tree_map_only(Tensor, lambda t: tuple(t.shape), tree) for tree in (before, change)]
            raise ValueError(
                f"update of {name} returns (changes, state), tensors of the parameters' shapes and a state of the form "
                f"that init gave it: here {shapes[0]}, given {shapes[1]} (nothing was changed)"
            )
    return changes


def _is_like(new: Any, old: Any) -> bool:
    """Return whether trees of tensors have the same form and shapes."""
    if isinstance(old, Tensor):
        return isinstance(new, Tensor) and new.shape == old.shape
    if isinstance(old, Mapping):
        return isinstance(new, Mapping) and list(new) == list(old) and all(_is_like(new[k], old[k]) for k in old)
    if not isinstance(old, list | tuple) or not isinstance(new, list | tuple) or len(new) != len(old):
        return False
    return all(_is_like(a, b) for a, b in zip(new, old, strict=True))


def finite(changes: Mapping[int, Change]) -> Tensor:
    """Return whether all changes and states are finite. Tensors of one shape are added first: fewer sums, which a
    compiler fuses."""
    leaves = [t for t in pytree.tree_leaves(dict(changes)) if isinstance(t, Tensor)]
    totals: dict[Any, Tensor] = {}
    for t in leaves:
        totals[t.shape] = totals[t.shape] + t if t.shape in totals else t
    return all_finite(torch.stack([t.sum().to(leaves[0].dtype) for t in totals.values()]))


def write(theta: ByBlock, states: ByBlock, changes: Mapping[int, Change], ok: Tensor | None = None) -> None:
    """Apply changes, where ok, to the parameters that are trained and to the states, whose tensors stay where they
    are."""
    for l, (moves, state) in changes.items():
        for q, move in zip(theta[l], moves, strict=True):
            if q.requires_grad:
                torch.atleast_1d(q).add_(move if ok is None else torch.where(ok, move, 0.0))  # as `overwrite` does
        overwrite(states[l], state, ok)


def as_matrix(p: Params) -> Tensor:
    """Return all parameters side by side, a bias as one column."""
    return torch.cat([q.flatten(1) if q.ndim > 1 else q.unsqueeze(1) for q in p], 1)


def parted(U: Tensor, parameters: Params) -> list[Tensor]:
    """Return the parameters that `as_matrix` has side by side."""
    parts = zip(parameters, U.split([q[0].numel() for q in parameters], 1), strict=True)
    return [part.reshape(q.shape).to(q.dtype) for q, part in parts]


class Schedulable(torch.optim.Optimizer):
    """Optimizer that a learning-rate scheduler attaches to, for rules that are not optimizers of torch."""

    def __init__(self, groups: Sequence[dict[str, Any]]):
        super().__init__(list(groups) or [{"params": [torch.zeros(0)], "lr": 0.0}], {"differentiable": False})
        self._opt_called = True  # schedulers check this: the trainer's steps count as its own

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Raise RuntimeError: the trainer moves the weights."""
        raise RuntimeError("the trainer moves the weights; call its step(x, y)")

    def register_step_pre_hook(self, hook: Any) -> Any:
        """Raise RuntimeError: no step of this object is taken, so that hooks would not be called."""
        raise RuntimeError("the trainer moves the weights, without this object's step; take altmin.LocalOptimizer")

    register_step_post_hook = register_step_pre_hook
