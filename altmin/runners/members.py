"""One member's step as a pure function of its state, its options and a mini-batch, which `torch.func.vmap` turns into
the step of all members.

The step is that of `AltMin` and `Backprop` themselves: the first member is the template, with each member's numbers in
place of its own.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from altmin.calculus import products
from altmin.calculus.context import Context
from altmin.common.state import overwrite
from altmin.core.chain import Theta
from altmin.core.penalty import grown
from altmin.core.step import move_codes
from altmin.core.trainer import AltMin
from altmin.core.weights.adam_sgd import Row
from altmin.methods.backprop import Backprop
from altmin.runners.parameters import flat_groups


class State(NamedTuple):
    """Of one member, or of all with a dimension more in front.

    rows, options: weights with moments, and the optimizer's numbers, of every `FlatGroup`. buffers: the model's.
    counts: the optimizer's steps. own: the method's other state; for AltMin mu, the states of weight rules and of the
    code solver, and the learning rate of a rule that is not an optimizer. A step changes no options.
    """

    rows: list[Row]
    options: list[dict[str, Tensor]]
    buffers: list[Tensor]
    counts: Tensor
    own: dict[str, Any]


class Outcome(NamedTuple):
    """The result of a member's step; nothing is written yet. finite: whether loss, objective and new state are."""

    loss: Tensor
    objective: Tensor
    finite: Tensor
    state: State


class Template:
    """The first member, which computes any member's step: what AltMin and Backprop have in common.

    groups: all members' parameters. clip_norm: the largest norm of all gradients together. l1s, fitted: as in
    `flat_groups`.
    """

    clip_norm: float | None = None

    def __init__(self, methods: Sequence[Any], l1s: Sequence[float], fitted: Mapping[int, int]):
        self.method = methods[0]
        parameters = [list(method.model.parameters()) for method in methods]
        self.dtype, self.device = parameters[0][0].dtype, parameters[0][0].device
        self.groups = flat_groups(parameters, [method.optimizer for method in methods], l1s, fitted)
        self.slots = buffers_of(self.method)

    @contextmanager
    def swapped(self, buffers: Sequence[Tensor]) -> Iterator[None]:
        """Within, the template has these buffers."""
        before = [places[0][0]._buffers[places[0][1]] for places in self.slots]
        try:
            _put(self.slots, buffers)
            yield
        finally:
            _put(self.slots, before)

    def parts(self, rows: Iterable[Row]) -> dict[int, Tensor]:
        """Return a member's parameters by their places."""
        parts: dict[int, Tensor] = {}
        for group, row in zip(self.groups, rows, strict=True):
            parts |= zip(group.places, group.parts(row["weights"]), strict=True)
        return parts

    def stepped(self, state: State, rows: Sequence[Row], grads: Mapping[int, Tensor], k: int = 1) -> list[Row]:
        """Return rows after a step of the optimizer, its k-th after those of the state, with gradients by places."""
        optimized = [place for group in self.groups if group.optimized for place in group.places]
        if self.clip_norm is not None and optimized:  # as torch.nn.utils.clip_grad_norm_
            norm = sum(grads[place].square().sum() for place in optimized) ** 0.5
            factor = (self.clip_norm / (norm + 1e-6)).clamp_max(1.0)
            grads = {place: grads[place] * factor for place in optimized}
        return [
            group.stepped(row, [grads[place] for place in group.places], options, state.counts + k)
            if group.optimized
            else row
            for group, row, options in zip(self.groups, rows, state.options, strict=True)
        ]

    def outcome(self, loss: Tensor, objective: Tensor, finite: Tensor, old: State, new: State) -> Outcome:
        """Return the result, which is finite if the new weights and buffers are too."""
        total = 0 * loss
        for group, row in zip(self.groups, new.rows, strict=True):
            if group.kind != "frozen":
                total = total + row["weights"].sum()  # a sum of finite numbers overflows only where all is lost
        for a, b in zip(new.buffers, old.buffers, strict=True):
            if b.is_floating_point():
                total = total + torch.where(b.isfinite(), 0 * a, 0.0).sum()
        return Outcome(loss, objective, finite & total.isfinite(), new)

    def read(self, method: Any) -> dict[str, Any]:
        """Return `State.own` of a method."""
        return {}

    def write(self, method: Any, own: dict[str, Any]) -> None:
        """Bring a method up to date with its `State.own`."""

    def step(self, state: State, x: Tensor, y: Tensor, context: Context, refresh: bool) -> Outcome:
        """Compute one mini-batch; nothing changes. refresh: see `Updates.refresh`."""
        raise NotImplementedError

    def end_epoch(self, state: State) -> dict[str, Any]:
        """Return `State.own` after a pass over the data."""
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
        self.local = updates.local
        self.clip_norm = None if self.local is None else self.local.clip_norm
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
        with self.swapped(buffers):
            codes = am.solver(state.own["codes"])
            moved = move_codes(am.chain, theta, codes, am.loss, x, y, mu.to(self.dtype), context)
            found = {l: updates.measure(l, theta[l], problem) for l, problem in enumerate(moved.problems)}
            rates = {name: rate.to(self.dtype) for name, rate in state.own["rates"].items()}
            proposals = updates.propose(theta, state.own["states"], found, len(x), rates, refresh)
            mu = grown(mu, am.penalty.increment, 1.0, am.penalty.maximum)
            rows = self._followed(state, theta, found) if self.local else list(state.rows)
            for m, saved in moved.statistics:  # not before: gradients may take another pass
                m.commit(saved)
        for l, n in self.fitted.items():
            changes = list(itertools.compress(proposals[l].changes, self.trained[l]))
            rows[n] = {"weights": rows[n]["weights"] + self.groups[n].flat(changes)}
        states = {**state.own["states"], **{l: each.state for l, each in proposals.items()}}
        own = {**state.own, "mu": mu, "states": states, "codes": dict(enumerate(moved.solver_states))}
        finite = moved.is_finite
        for each in proposals.values():
            finite = finite & each.finite
        new = state._replace(rows=rows, buffers=buffers, counts=state.counts + updates.inner_steps, own=own)
        return self.outcome(moved.loss, moved.objective, finite, state, new)

    def _followed(self, state: State, first: Theta, found: Mapping[int, Any]) -> list[Row]:
        """Return rows after all steps of the optimizer. found: the blocks' gradients; with inner steps their
        problems."""
        assert self.local is not None
        grads = {l: found[l] for l in self.local.blocks}
        if self.local.steps == 1:
            return self.stepped(state, state.rows, self._by_place(grads))
        problems, rows, theta, blocks = grads, list(state.rows), first, self.method.chain.blocks
        for k in range(1, self.local.steps + 1):
            grads = {l: problem.grads(blocks[l], theta[l]) for l, problem in problems.items()}
            rows = self.stepped(state, rows, self._by_place(grads), k)
            if k < self.local.steps:
                theta = self._theta(rows)
                problems = {l: self.local.after(l, found[l], first[l], theta[l]) for l in problems}
        return rows

    def _theta(self, rows: Iterable[Row]) -> Theta:
        parts = self.parts(rows)
        return [[parts[place] for place in block] for block in self.places]

    def _by_place(self, grads: Mapping[int, Sequence[Tensor]]) -> dict[int, Tensor]:
        return {place: g for l, block in grads.items() for place, g in zip(self.places[l], block, strict=True)}

    def end_epoch(self, state: State) -> dict[str, Any]:
        penalty = self.method.penalty
        return {**state.own, "mu": grown(state.own["mu"], 0.0, penalty.growth, penalty.maximum)}


class BackpropTemplate(Template):
    """`Backprop.step` for one member."""

    def __init__(self, methods: Sequence[Any]):
        super().__init__(methods, [0.0] * len(methods), {})
        self.names = [name for name, _ in self.method.model.named_parameters()]
        self.clip_norm = self.method.clip_norm

    def step(self, state: State, x: Tensor, y: Tensor, context: Context, refresh: bool) -> Outcome:
        parts = self.parts(state.rows)
        trained = {place: parts[place] for group in self.groups if group.optimized for place in group.places}

        def loss(trained: dict[int, Tensor]) -> tuple[Tensor, list[Tensor]]:
            buffers = [value.clone() for value in state.buffers]
            given = {self.names[place]: p for place, p in {**parts, **trained}.items()}
            with self.swapped(buffers), products.autocast(x, context.bf16):
                return self.method.loss(torch.func.functional_call(self.method.model, given, (x,)), y), buffers

        grads, (value, buffers) = torch.func.grad_and_value(loss, has_aux=True)(trained)
        rows = self.stepped(state, state.rows, grads)
        new = state._replace(rows=rows, buffers=buffers, counts=state.counts + 1)
        return self.outcome(value, value, value.isfinite(), state, new)


TEMPLATES: dict[type, type[Any]] = {AltMin: AltMinTemplate, Backprop: BackpropTemplate}
"""The methods that can be members."""


def buffers_of(method: Any) -> list[list[tuple[nn.Module, str]]]:
    """Return for every buffer of a method's model all modules that have it, and its name there."""
    if isinstance(method, AltMin):
        return method.chain.buffers()
    return [[(m, name)] for m in method.model.modules() for name, value in m._buffers.items() if value is not None]


def _put(slots: Sequence[Sequence[tuple[nn.Module, str]]], values: Sequence[Any]) -> None:
    for places, value in zip(slots, values, strict=True):
        for module, name in places:
            module._buffers[name] = value
