"""One member's step as a function of its state and a mini-batch, of which `torch.func.vmap` makes that of all members.

The step is that of `AltMin` and `Backprop` themselves: the first member is the template, with each member's numbers in
place of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from altmin.common.state import overwrite
from altmin.core.penalty import grown
from altmin.core.step import move_codes, with_states
from altmin.core.trainer import AltMin
from altmin.core.weights.local import LocalAdam, LocalRule, LocalSGD
from altmin.core.weights.rule import Change
from altmin.methods.backprop import Backprop
from altmin.runners.functional import FunctionalContext

CONTEXT = FunctionalContext()
Numbers = dict[int, dict[str, Any]]


class State(NamedTuple):
    """Of one member, or of all with a dimension more in front.

    parameters, buffers: the model's, in its order. rules: the states of weight rules. own: the method's other state.
    numbers: of the rules, by group of parameters; a step changes none.
    """

    parameters: list[Tensor]
    buffers: list[Tensor]
    rules: dict[int, Any]
    own: dict[str, Any]
    numbers: Numbers


class Result(NamedTuple):
    """The result of a member's step; nothing is written yet. finite: whether loss, objective and new state are."""

    loss: Tensor
    objective: Tensor
    finite: Tensor
    state: State


class Template:
    """The first member, which computes any member's step: what AltMin and Backprop have in common."""

    def __init__(self, method: Any):
        self.method = method
        parameters = list(method.model.parameters())
        self.dtype, self.device = parameters[0].dtype, parameters[0].device
        self.trained = [p.requires_grad for p in parameters]
        self.places = {id(p): place for place, p in enumerate(parameters)}
        self.slots = buffers_of(method)

    @contextmanager
    def swapped(self, buffers: Sequence[Tensor]) -> Iterator[None]:
        """Within, the template has these buffers."""
        before = [places[0][0]._buffers[places[0][1]] for places in self.slots]
        try:
            _put(self.slots, buffers)
            yield
        finally:
            _put(self.slots, before)

    def moved(self, parameters: Sequence[Tensor], changes: Mapping[int, Tensor]) -> list[Tensor]:
        """Return parameters with changes, by places, of those that are trained."""
        moves = (changes.get(place) if trained else None for place, trained in enumerate(self.trained))
        return [p if change is None else p + change for p, change in zip(parameters, moves, strict=True)]

    def result(self, loss: Tensor, objective: Tensor, finite: Tensor, old: State, new: State) -> Result:
        """Return the result, which is finite if the new weights and buffers, and the rules' states, are too."""
        total = 0 * loss
        trained = [p for p, trained in zip(new.parameters, self.trained, strict=True) if trained]
        for t in (*trained, *pytree.tree_leaves(new.rules)):
            total = total + 0 * t.sum()  # a sum of finite numbers overflows only where all is lost
        for a, b in zip(new.buffers, old.buffers, strict=True):
            if b.is_floating_point():
                total = total + torch.where(b.isfinite(), 0 * a, 0.0).sum()
        return Result(loss, objective, finite & total.isfinite(), new)

    def end_epoch(self, state: State) -> dict[str, Any]:
        """Return `State.own` after a pass over the data."""
        return state.own


class AltMinTemplate(Template):
    """`AltMin.step` for one member."""

    def __init__(self, method: AltMin):
        super().__init__(method)
        self.chain, self.loss = method.chain.functional(), method.loss.functional()
        self.blocks = [[self.places[id(p)] for p in block] for block in method.theta]

    @staticmethod
    def numbers(method: Any) -> Numbers:
        """Return the numbers of the rules, by block."""
        return dict(method.updates.numbers())

    @staticmethod
    def read(method: Any) -> tuple[dict[int, Any], dict[str, Any]]:
        """Return the states of the rules, and `State.own`."""
        own = {"mu": torch.tensor(method.penalty.value, dtype=torch.float64), "codes": dict(method.code_states)}
        return method.updates.states, own

    @staticmethod
    def write(method: Any, rules: Any, own: dict[str, Any], numbers: Numbers, steps: int) -> None:
        """Bring a method up to date."""
        overwrite((method.updates.states, method.code_states), (rules, own["codes"]))
        method.penalty.value, method.updates.count = own["mu"].item(), steps
        for (_, blocks), group in zip(method.updates.scheduled, method.optimizer.param_groups, strict=False):
            group["lr"] = numbers[blocks[0]]["lr"]

    def step(self, state: State, x: Tensor, y: Tensor, constant: Numbers, kind: int) -> Result:
        """Compute one mini-batch; nothing changes. constant: numbers that are the same for all. kind: of the update."""
        am, mu, updates = self.method, state.own["mu"], self.method.updates
        theta = [[state.parameters[place] for place in block] for block in self.blocks]
        buffers, codes = (
            [value.clone() for value in state.buffers],
            with_states(am.codes, [*state.own["codes"].values()]),
        )
        with self.swapped(buffers):
            moved = move_codes(self.chain, theta, codes, self.loss, x, y, mu.to(self.dtype), CONTEXT)
            numbers = {l: {**constant[l], **state.numbers[l]} for l in constant}
            problems, rates = dict(enumerate(moved.problems)), updates.rates(len(x), kind, numbers)
            changes = updates.changes(theta, state.rules, updates.measure(theta, problems), rates, problems)
            for m, saved in moved.statistics:  # not before: gradients may take another pass
                m.commit(saved)
        by_place = {place: c for l, (own, _) in changes.items() for place, c in zip(self.blocks[l], own, strict=True)}
        rules = {**state.rules, **{l: after for l, (_, after) in changes.items()}}
        mu = grown(mu, am.penalty.increment, 1.0, am.penalty.maximum)
        own = {"mu": mu, "codes": dict(enumerate(moved.solver_states))}
        new = State(self.moved(state.parameters, by_place), buffers, rules, own, state.numbers)
        return self.result(moved.loss, moved.objective, moved.is_finite, state, new)

    def end_epoch(self, state: State) -> dict[str, Any]:
        penalty = self.method.penalty
        return {**state.own, "mu": grown(state.own["mu"], 0.0, penalty.growth, penalty.maximum)}


class BackpropTemplate(Template):
    """`Backprop.step` for one member: its optimizer as a weight rule, and each of its groups as a block."""

    def __init__(self, method: Any):
        super().__init__(method)
        self.names = [name for name, _ in method.model.named_parameters()]
        self.rule = rule_of(method)
        groups = method.optimizer.param_groups
        self.groups = {g: [self.places[id(p)] for p in _moving(group)] for g, group in enumerate(groups)}

    @staticmethod
    def numbers(method: Any) -> Numbers:
        rule, found = rule_of(method), {}
        for g, group in enumerate(method.optimizer.param_groups):
            found[g] = {**rule.numbers(), "lr": float(group["lr"]), "weight_decay": group["weight_decay"]}
        return found

    @staticmethod
    def read(method: Any) -> tuple[dict[int, Any], dict[str, Any]]:
        rule, held, states = rule_of(method), method.optimizer.state, {}
        for g, group in enumerate(method.optimizer.param_groups):
            params = _moving(group)
            states[g] = rule.start(params)
            for i, p in enumerate(params):
                if held.get(p):
                    states[g]["step"] = torch.as_tensor(held[p].get("step", 1.0), dtype=torch.float32).to(p.device)
                    for name in rule.moments:
                        states[g][name][i] = held[p][name]
        return states, {}

    @staticmethod
    def write(method: Any, rules: Any, own: dict[str, Any], numbers: Numbers, steps: int) -> None:
        rule, optimizer = rule_of(method), method.optimizer
        for g, group in enumerate(optimizer.param_groups):
            group["lr"], on_device = numbers[g]["lr"], group.get("fused") or group.get("capturable")
            for i, p in enumerate(_moving(group) if float(rules[g]["step"]) and rule.moments else ()):
                optimizer.state[p] = {name: rules[g][name][i].clone() for name in rule.moments}
                if isinstance(rule, LocalAdam):
                    optimizer.state[p]["step"] = rules[g]["step"].clone().to(p.device if on_device else "cpu")

    def step(self, state: State, x: Tensor, y: Tensor, constant: Numbers, kind: int) -> Result:
        trained = {place: state.parameters[place] for places in self.groups.values() for place in places}

        def loss(trained: dict[int, Tensor]) -> tuple[Tensor, list[Tensor]]:
            buffers = [value.clone() for value in state.buffers]
            given = {
                name: trained.get(i, p) for i, (name, p) in enumerate(zip(self.names, state.parameters, strict=True))
            }
            with self.swapped(buffers):
                return self.method.loss(torch.func.functional_call(self.method.model, given, (x,)), y), buffers

        grads, (value, buffers) = torch.func.grad_and_value(loss, has_aux=True)(trained)
        theta = {g: [trained[place] for place in places] for g, places in self.groups.items() if places}
        slopes = {g: [grads[place] for place in self.groups[g]] for g in theta}
        rates = {g: {**constant[g], **state.numbers[g], "decayed": [True] * len(theta[g])} for g in theta}
        found: dict[int, Change] = self.rule.update_all(theta, state.rules, slopes, rates)
        by_place = {p: c for g, (changes, _) in found.items() for p, c in zip(self.groups[g], changes, strict=True)}
        rules = {**state.rules, **{g: after for g, (_, after) in found.items()}}
        new = State(self.moved(state.parameters, by_place), buffers, rules, {}, state.numbers)
        return self.result(value, value, value.isfinite(), state, new)


TEMPLATES: dict[type, Any] = {AltMin: AltMinTemplate, Backprop: BackpropTemplate}
"""The methods that can be members."""


def rule_of(method: Any) -> LocalRule:
    """Return the weight rule that takes the steps of a torch optimizer of a method, Adam, AdamW or SGD."""
    group, clip = method.optimizer.param_groups[0], method.clip_norm
    if isinstance(method.optimizer, torch.optim.SGD):
        return LocalSGD(momentum=group["momentum"], clip_norm=clip)
    decoupled = bool(group.get("decoupled_weight_decay"))
    return LocalAdam(betas=group["betas"], eps=group["eps"], decoupled_weight_decay=decoupled, clip_norm=clip)


def _moving(group: dict[str, Any]) -> list[Tensor]:
    return [p for p in group["params"] if p.requires_grad]


def buffers_of(method: Any) -> list[list[tuple[nn.Module, str]]]:
    """Return for every buffer of a method's model all modules that have it, and its name there."""
    if isinstance(method, AltMin):
        return method.chain.buffers()
    return [[(m, name)] for m in method.model.modules() for name, value in m._buffers.items() if value is not None]


def _put(slots: Sequence[Sequence[tuple[nn.Module, str]]], values: Sequence[Any]) -> None:
    for places, value in zip(slots, values, strict=True):
        for module, name in places:
            module._buffers[name] = value
