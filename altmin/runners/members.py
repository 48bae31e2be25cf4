"""One member's step as a function of its state and a mini-batch, of which `torch.func.vmap` makes that of all members.

The step is that of `AltMin` and `Backprop` themselves: the first member is the template, with each member's numbers in
place of its own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from altmin.common.state import overwrite, zero_if_finite
from altmin.core.penalty import grown
from altmin.core.step import move_codes, with_states
from altmin.core.trainer import AltMin
from altmin.core.weights.local import LocalAdam, LocalRule, LocalSGD
from altmin.core.weights.rule import Change
from altmin.methods.backprop import Backprop
from altmin.runners.functional import FunctionalContext

CONTEXT = FunctionalContext()
Numbers = dict[int, dict[str, Any]]
Slots = list[list[tuple[nn.Module, str]]]


class State(NamedTuple):
    """The state of one member, or of all with a dimension more in front.

    parameters, buffers: the model's, in its order. rules: the states of weight rules. other: what else a method has.
    """

    parameters: list[Tensor]
    buffers: list[Tensor]
    rules: dict[int, Any]
    other: dict[str, Any]


class Result(NamedTuple):
    """The result of a member's step; nothing is written yet. finite: whether loss, objective and new state are."""

    loss: Tensor
    objective: Tensor
    finite: Tensor
    state: State


class Template:
    """The first member, which computes any member's step: what AltMin and Backprop have in common. blocks: the
    parameters that each weight rule changes."""

    numbers: Any

    def __init__(self, method: Any, blocks: Iterable[Sequence[Tensor]]):
        self.method = method
        parameters = list(method.model.parameters())
        self.dtype, self.device = parameters[0].dtype, parameters[0].device
        self.trained = [p.requires_grad for p in parameters]
        places = {id(p): place for place, p in enumerate(parameters)}
        self.blocks = {l: [places[id(p)] for p in block] for l, block in enumerate(blocks)}
        self.slots = buffers_of(method)
        self.zeros = {l: dict.fromkeys(numbers, 0.0) for l, numbers in self.numbers(method).items()}
        """The rules' numbers that an ensemble does not have, since they are zero for all members."""

    @contextmanager
    def swapped(self, buffers: Sequence[Tensor]) -> Iterator[None]:
        """Let the template have these buffers within."""
        before = values_of(self.slots)
        try:
            put(self.slots, buffers)
            yield
        finally:
            put(self.slots, before)

    def result(
        self,
        old: State,
        changes: Mapping[int, Change],
        buffers: list[Tensor],
        other: dict[str, Any],
        loss: Tensor,
        objective: Tensor,
        finite: Tensor,
    ) -> Result:
        """Return the result of changes by block, which is finite if the new weights and buffers, and the rules' states,
        are too."""
        parameters, total = list(old.parameters), zero_if_finite(loss)
        for l, (moves, _) in changes.items():
            for place, move in zip(self.blocks[l], moves, strict=True):
                if self.trained[place]:
                    parameters[place] = parameters[place] + move
                    total = total + zero_if_finite(parameters[place])  # overflows only where all is lost
        rules = {**old.rules, **{l: after for l, (_, after) in changes.items()}}
        for t in pytree.tree_leaves(rules):
            total = total + zero_if_finite(t)
        for a, b in zip(buffers, old.buffers, strict=True):
            if b.is_floating_point():
                total = total + zero_if_finite(torch.where(b.isfinite(), a, 0.0))
        return Result(loss, objective, finite & total.isfinite(), State(parameters, buffers, rules, other))


class AltMinTemplate(Template):
    """Step of `AltMin` for one member."""

    def __init__(self, method: AltMin):
        super().__init__(method, method.theta)
        self.chain, self.loss = method.chain.functional(), method.loss.functional()

    @staticmethod
    def numbers(method: Any) -> Numbers:
        """Return the numbers of the rules, by block."""
        return dict(method.updates.numbers())

    @staticmethod
    def read(method: Any) -> tuple[dict[int, Any], dict[str, Any]]:
        """Return the states of the rules, and `State.other`."""
        mu, count = torch.tensor(method.penalty.value, dtype=torch.float64), torch.tensor(method.updates.count)
        return method.updates.states, {"mu": mu, "count": count, "codes": dict(method.code_states)}

    @staticmethod
    def write(method: Any, rules: Any, other: dict[str, Any], numbers: Numbers) -> None:
        """Bring a method up to date."""
        overwrite((method.updates.states, method.code_states), (rules, other["codes"]))
        method.penalty.value, method.updates.count = other["mu"].item(), other["count"].item()
        for (_, blocks), group in zip(method.updates.scheduled, method.optimizer.param_groups, strict=False):
            group["lr"] = numbers[blocks[0]]["lr"].item()

    def step(self, state: State, numbers: Numbers, x: Tensor, y: Tensor, kind: int) -> Result:
        """Compute one mini-batch; nothing changes. numbers: of the rules, by block. kind: of the update."""
        am, mu, updates = self.method, state.other["mu"], self.method.updates
        theta = [[state.parameters[place] for place in block] for block in self.blocks.values()]
        buffers, codes = [b.clone() for b in state.buffers], with_states(am.codes, [*state.other["codes"].values()])
        with self.swapped(buffers):
            moved = move_codes(self.chain, theta, codes, self.loss, x, y, mu.to(self.dtype), CONTEXT)
            numbers = {l: {**zeros, **numbers[l]} for l, zeros in self.zeros.items()}
            problems, rates = dict(enumerate(moved.problems)), updates.rates(len(x), kind, numbers)
            changes = updates.changes(theta, state.rules, updates.measure(theta, problems, kind=kind), rates, problems)
            for m, saved in moved.statistics:  # not before: gradients may take another pass
                m.commit(saved)
        mu = grown(mu, am.penalty.increment, 1.0, am.penalty.maximum)
        other = {"mu": mu, "count": state.other["count"] + 1, "codes": dict(enumerate(moved.solver_states))}
        return self.result(state, changes, buffers, other, moved.loss, moved.objective, moved.is_finite)


class BackpropTemplate(Template):
    """Step of `Backprop` for one member: its optimizer as a weight rule, and each of its groups as a block."""

    def __init__(self, method: Any):
        super().__init__(method, map(_moving, method.optimizer.param_groups))
        self.names = [name for name, _ in method.model.named_parameters()]
        self.rule = rule_of(method)

    @staticmethod
    def numbers(method: Any) -> Numbers:
        groups, numbers = enumerate(method.optimizer.param_groups), rule_of(method).numbers()
        return {g: {**numbers, "lr": group["lr"], "weight_decay": group["weight_decay"]} for g, group in groups}

    @staticmethod
    def read(method: Any) -> tuple[dict[int, Any], dict[str, Any]]:
        rule, present, states = rule_of(method), method.optimizer.state, {}
        for g, group in enumerate(method.optimizer.param_groups):
            params = _moving(group)
            states[g] = rule.start(params)
            for i, p in enumerate(params):
                if present.get(p):
                    states[g]["step"] = torch.as_tensor(present[p].get("step", 1.0), dtype=torch.float32).to(p.device)
                    for name in rule.moments:
                        states[g][name][i] = present[p][name]
        return states, {}

    @staticmethod
    def write(method: Any, rules: Any, other: dict[str, Any], numbers: Numbers) -> None:
        rule, optimizer = rule_of(method), method.optimizer
        for g, group in enumerate(optimizer.param_groups):
            group["lr"], on_device = numbers[g]["lr"].item(), group.get("fused") or group.get("capturable")
            for i, p in enumerate(_moving(group) if float(rules[g]["step"]) and rule.moments else ()):
                optimizer.state[p] = {name: rules[g][name][i].clone() for name in rule.moments}
                if isinstance(rule, LocalAdam):
                    optimizer.state[p]["step"] = rules[g]["step"].clone().to(p.device if on_device else "cpu")

    def step(self, state: State, numbers: Numbers, x: Tensor, y: Tensor, kind: int) -> Result:
        trained = {place: state.parameters[place] for places in self.blocks.values() for place in places}

        def loss(trained: dict[int, Tensor]) -> tuple[Tensor, list[Tensor]]:
            buffers = [value.clone() for value in state.buffers]
            parameters = {self.names[place]: trained.get(place, p) for place, p in enumerate(state.parameters)}
            with self.swapped(buffers):
                return self.method.loss(torch.func.functional_call(self.method.model, parameters, (x,)), y), buffers

        grads, (value, buffers) = torch.func.grad_and_value(loss, has_aux=True)(trained)
        theta = {g: [trained[place] for place in places] for g, places in self.blocks.items() if places}
        slopes = {g: [grads[place] for place in self.blocks[g]] for g in theta}
        rates = {g: {**self.zeros[g], **numbers[g], "decayed": [True] * len(theta[g])} for g in theta}
        changes = self.rule.update_all(theta, state.rules, slopes, rates)
        return self.result(state, changes, buffers, {}, value, value, value.isfinite())


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


def buffers_of(method: Any) -> Slots:
    """Return for every buffer of a method's model all modules that have it, and its name there."""
    if isinstance(method, AltMin):
        return method.chain.buffers()
    return [[(m, name)] for m in method.model.modules() for name, value in m._buffers.items() if value is not None]


def values_of(slots: Slots) -> list[Any]:
    """Return the buffers that are in the first place of every slot."""
    return [module._buffers[name] for (module, name), *_ in slots]


def put(slots: Slots, values: Sequence[Any]) -> None:
    """Write buffers to all of their places."""
    for places, value in zip(slots, values, strict=True):
        for module, name in places:
            module._buffers[name] = value
