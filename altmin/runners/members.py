"""One member's step as a pure function of its state, its options and a mini-batch, which `torch.func.vmap` turns into
the step of all members.

The step is that of `AltMin` and `Backprop` themselves: the first member is the template, with each member's numbers in
place of its own. Only the optimizer's last step is in `ensemble.py`, which takes it for all members at once.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from altmin.calculus import Params, products
from altmin.calculus.context import Context
from altmin.common.state import overwrite
from altmin.core.chain import Theta
from altmin.core.penalty import grown
from altmin.core.step import move_codes
from altmin.core.trainer import AltMin
from altmin.core.weights.adam_sgd import Row, coefficients
from altmin.core.weights.local import LocalOptimizer
from altmin.methods.backprop import Backprop
from altmin.runners.parameters import flat_groups


class Option(NamedTuple):
    """A number that may differ between members: the attribute `name` of the method's `owner`."""

    owner: str
    name: str


class State(NamedTuple):
    """Of one member, or of all with a dimension more in front.

    rows, rates: weights with moments, and options, of every `FlatGroup`. options: the method's own, where members
    differ. buffers: the model's. counts: the optimizer's steps. taken: the ensemble's steps. own: the method's other
    state; for AltMin mu, the states of weight rules and of the code solver, and the learning rate of a rule that is not
    an optimizer. A step changes no rates or options.
    """

    rows: list[Row]
    rates: list[dict[str, Tensor]]
    options: dict[Option, Tensor]
    buffers: list[Tensor]
    counts: Tensor
    taken: Tensor
    own: dict[str, Any]


class Outcome(NamedTuple):
    """The result of a member's step; nothing is written yet.

    finite: whether loss, objective, codes and memories are. grads: of every `FlatGroup`, for the optimizer's last step.
    rows: by the group's number, where a memory or inner steps have made new ones. buffers, counts, own: the next ones.
    """

    loss: Tensor
    objective: Tensor
    finite: Tensor
    grads: list[list[Tensor]]
    rows: dict[int, Row]
    buffers: list[Tensor]
    counts: Tensor
    own: dict[str, Any]


class Template:
    """The first member, which computes any member's step: what AltMin and Backprop have in common.

    Each member's numbers are swapped in and out again. groups: all members' parameters. options: numbers of methods
    that are not the same for all. steps: how many the optimizer takes in one step of the method. l1s, fitted: as in
    `flat_groups`.
    """

    steps = 1

    def __init__(self, methods: Sequence[Any], l1s: Sequence[float], fitted: Mapping[int, int]):
        self.method = methods[0]
        parameters = [list(method.model.parameters()) for method in methods]
        self.dtype, self.device = parameters[0][0].dtype, parameters[0][0].device
        self.groups = flat_groups(parameters, [method.optimizer for method in methods], l1s, fitted)
        values = {option: self._values(option, methods) for option in varying(self.method)}
        self.options = {option: tensor for option, tensor in values.items() if tensor is not None}
        self.slots = [[(vars(getattr(self.method, option.owner)), option.name)] for option in self.options]
        self.slots += [[(module._buffers, name) for module, name in places] for places in buffers_of(self.method)]

    def _values(self, option: Option, methods: Sequence[Any]) -> Tensor | None:
        """One number for each member; None if they are the same."""
        values = [getattr(getattr(method, option.owner), option.name, None) for method in methods]
        if all(value == values[0] for value in values):
            return None
        dtype = torch.float64 if option.owner == "penalty" else self.dtype  # mu keeps all its digits
        return torch.tensor([float("inf") if v is None else v for v in values], dtype=dtype, device=self.device)

    @contextmanager
    def swapped(self, options: Mapping[Option, Tensor], buffers: Iterable[Tensor] = ()) -> Iterator[None]:
        """The template has these options and buffers within."""
        kept = [places[0][0][places[0][1]] for places in self.slots]
        try:
            _put(self.slots, (*options.values(), *buffers))
            yield
        finally:
            _put(self.slots, kept)

    def read(self, method: Any) -> dict[str, Any]:
        """`State.own` of a method."""
        return {}

    def write(self, method: Any, own: dict[str, Any]) -> None:
        """Brings a method up to date with its `State.own`."""

    def step(self, state: State, x: Tensor, y: Tensor, context: Context, refresh: bool) -> Outcome:
        """One mini-batch, except for the last step of the optimizer. Changes nothing. refresh: see
        `Updates.refresh`."""
        raise NotImplementedError

    def end_epoch(self, state: State) -> dict[str, Any]:
        """`State.own` after a pass over the data."""
        return state.own


class AltMinTemplate(Template):
    """`AltMin.step` for one member."""

    def __init__(self, methods: Sequence[Any]):
        first, updates = methods[0], methods[0].updates
        places = {id(p): place for place, p in enumerate(first.model.parameters())}
        self.places = [[places[id(p)] for p in block] for block in first.theta]
        self.trained = [[p.requires_grad for p in block] for block in first.theta]
        fitted = {
            l: list(itertools.compress(self.places[l], self.trained[l]))
            for l in updates.states
            if updates.is_trained(l)
        }
        self.local, self.steps = updates.local, updates.inner_steps
        l1s = [0.0 if self.local is None else method.updates.local.l1 for method in methods]
        super().__init__(methods, l1s, {place: l for l in fitted for place in fitted[l]})
        self.fitted = {l: n for l in fitted for n, group in enumerate(self.groups) if group.places == fitted[l]}

    def read(self, method: Any) -> dict[str, Any]:
        mu = torch.tensor(method.penalty.value, dtype=torch.float64, device=self.device)
        rates = {name: mu.new_tensor(rate) for name, rate in method.updates.rates.items()}
        return {"mu": mu, "states": dict(method.updates.states), "codes": dict(method.code_states), "rates": rates}

    def write(self, method: Any, own: dict[str, Any]) -> None:
        method.penalty.value = own["mu"].item()
        if "lr" in own["rates"]:
            method.optimizer.param_groups[0]["lr"] = own["rates"]["lr"].item()
        overwrite((method.updates.states, method.code_states), (own["states"], own["codes"]))
        method.updates.recount()

    def step(self, state: State, x: Tensor, y: Tensor, context: Context, refresh: bool) -> Outcome:
        am, mu, theta = self.method, state.own["mu"], self._theta(state.rows)
        updates, buffers = am.updates, [value.clone() for value in state.buffers]
        with self.swapped(state.options, buffers):
            codes = am.solver(state.own["codes"])
            moved = move_codes(am.chain, theta, codes, am.loss, x, y, mu.to(self.dtype), context)
            found = {l: updates.measure(l, theta[l], problem) for l, problem in enumerate(moved.problems)}
            rates = {name: rate.to(self.dtype) for name, rate in state.own["rates"].items()}
            proposals = updates.propose(theta, state.own["states"], found, len(x), rates, refresh)
            mu = grown(mu, am.penalty.increment, 1.0, am.penalty.maximum)
            local = {l: found[l] for l in (self.local.blocks if self.local else ())}
            inner, grads = self._inner_steps(state, theta, local)
            for m, saved in moved.statistics:  # not before: gradients may take another pass
                m.commit(saved)
        rows = {}
        for l, n in self.fitted.items():
            changes = list(itertools.compress(proposals[l].changes, self.trained[l]))
            rows[n] = {"weights": state.rows[n]["weights"] + self.groups[n].flat(changes)}
        states = {**state.own["states"], **{l: each.state for l, each in proposals.items()}}
        own = {**state.own, "mu": mu, "states": states, "codes": dict(enumerate(moved.solver_states))}
        finite = moved.is_finite
        for each in proposals.values():
            finite = finite & each.finite
        counts = state.counts + self.steps
        return Outcome(moved.loss, moved.objective, finite, grads, rows | inner, buffers, counts, own)

    def _inner_steps(
        self, state: State, first: Theta, found: dict[int, Any]
    ) -> tuple[dict[int, Row], list[list[Tensor]]]:
        """All steps of the optimizer but the last: the groups' rows then, and the gradients there.

        found: of every block its gradients; its problem if there is more than one step."""
        if self.steps == 1:
            return {}, self._grads(found)
        rows, theta, problems, blocks = list(state.rows), first, found, self.method.chain.blocks
        assert self.local is not None
        for k in range(1, self.steps + 1):
            grads = self._grads({l: problem.grads(blocks[l], theta[l]) for l, problem in problems.items()})
            if k == self.steps:
                break
            for n, group in enumerate(self.groups):
                if group.optimized:
                    c = coefficients(state.rates[n], state.counts + k, self.dtype)
                    rows[n] = group.stepped(rows[n], grads[n], c)
            theta = self._theta(rows)
            problems = {l: self.local.after(l, problem, first[l], theta[l]) for l, problem in found.items()}
        return {n: row for n, row in enumerate(rows) if self.groups[n].optimized}, grads

    def _theta(self, rows: Iterable[Row]) -> Theta:
        parts: dict[int, Tensor] = {}
        for group, row in zip(self.groups, rows, strict=True):
            parts |= zip(group.places, group.parts(row["weights"]), strict=True)
        return [[parts[place] for place in block] for block in self.places]

    def _grads(self, found: Mapping[int, Params]) -> list[list[Tensor]]:
        """The blocks' gradients in the order of the groups, clipped together."""
        parts: dict[int, Tensor] = {}
        for l, block in found.items():
            parts |= zip(self.places[l], block, strict=True)
        grads = [[parts[place] for place in group.places] if group.optimized else [] for group in self.groups]
        return clipped(grads, None if self.local is None else self.local.clip_norm)

    def end_epoch(self, state: State) -> dict[str, Any]:
        penalty = self.method.penalty
        with self.swapped(state.options):
            return {**state.own, "mu": grown(state.own["mu"], 0.0, penalty.growth, penalty.maximum)}


class BackpropTemplate(Template):
    """`Backprop.step` for one member."""

    def __init__(self, methods: Sequence[Any]):
        super().__init__(methods, [0.0] * len(methods), {})
        self.names = [name for name, _ in self.method.model.named_parameters()]

    def step(self, state: State, x: Tensor, y: Tensor, context: Context, refresh: bool) -> Outcome:
        parts = [group.parts(row["weights"]) for group, row in zip(self.groups, state.rows, strict=True)]

        def loss(trained: list[list[Tensor]]) -> tuple[Tensor, list[Tensor]]:
            buffers = [value.clone() for value in state.buffers]
            given: dict[str, Tensor] = {}
            for group, own, other in zip(self.groups, trained, parts, strict=True):
                given |= zip((self.names[place] for place in group.places), own or other, strict=True)
            with self.swapped({}, buffers), products.autocast(x, context.bf16):
                return self.method.loss(torch.func.functional_call(self.method.model, given, (x,)), y), buffers

        trained = [own if group.optimized else [] for group, own in zip(self.groups, parts, strict=True)]
        grads, (value, buffers) = torch.func.grad_and_value(loss, has_aux=True)(trained)
        grads = clipped(grads, self.method.clip_norm)
        return Outcome(value, value, value.isfinite(), grads, {}, buffers, state.counts + 1, {})


def varying(method: Any) -> list[Option]:
    """The numbers that may differ between members, besides learning rates and what else is in an optimizer's groups."""
    if not isinstance(method, AltMin):
        return []
    rule = method.weights
    own = [] if isinstance(rule, LocalOptimizer) else [n for n, v in vars(rule).items() if isinstance(v, float)]
    return [
        *(Option("codes", name) for name in ("lr", "momentum", "share")),
        *(Option("weights", name) for name in own if name != "lr"),
        *(Option("penalty", name) for name in ("increment", "growth", "maximum")),
    ]


TEMPLATES: dict[type, type[Any]] = {AltMin: AltMinTemplate, Backprop: BackpropTemplate}
"""The methods that can be members."""


def clipped(grads: list[list[Tensor]], largest: float | None) -> list[list[Tensor]]:
    """A member's gradients, scaled to a total norm of at most `largest`, as torch.nn.utils.clip_grad_norm_ does."""
    if largest is None or not any(grads):
        return grads
    norm = sum(g.square().sum() for group in grads for g in group) ** 0.5
    factor = (largest / (norm + 1e-6)).clamp_max(1.0)
    return [[g * factor for g in group] for group in grads]


def buffers_of(method: Any) -> list[list[tuple[nn.Module, str]]]:
    """For every buffer of a method's model: all modules that have it, and its name there."""
    if isinstance(method, AltMin):
        return method.chain.buffers()
    return [[(m, name)] for m in method.model.modules() for name, value in m._buffers.items() if value is not None]


def _put(slots: Iterable[Sequence[tuple[Any, str]]], values: Iterable[Any]) -> None:
    for places, value in zip(slots, values, strict=False):
        for table, name in places:
            table[name] = value
