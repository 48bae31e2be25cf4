"""One member's step as a pure function of its state, its options and a mini-batch, which `torch.func.vmap` turns into
the step of all members.

The step is that of `AltMin` and `Backprop` themselves: the first member is the template, lent each member's numbers.
Only the optimizer's last step is left to `ensemble.py`, which takes it for all members at once, in place.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from altmin.calculus import Params, products
from altmin.core.chain import Theta
from altmin.core.codes.above import Residual
from altmin.core.penalty import grown
from altmin.core.step import move_codes, verdict
from altmin.core.trainer import AltMin
from altmin.core.weights.memory import Kept
from altmin.methods.backprop import Backprop
from altmin.runners.optimizers import Row, coefficients
from altmin.runners.parameters import flat_groups


class Option(NamedTuple):
    """A number that may differ between members: the attribute `name` of the method's `owner`."""

    owner: str
    name: str


class State(NamedTuple):
    """Of one member, or of all with a dimension more in front.

    rows, rates: weights with moments, and options, of every `FlatGroup`. options: the method's own, where members
    differ. buffers: the model's. counts: the optimizer's steps. taken: the ensemble's steps. own: what else the method
    keeps; of AltMin mu and the memories. A step changes neither rates nor options.
    """

    rows: list[Row]
    rates: list[dict[str, Tensor]]
    options: dict[Option, Tensor]
    buffers: list[Tensor]
    counts: Tensor
    taken: Tensor
    own: dict[str, Any]


class Outcome(NamedTuple):
    """What a member's step has found; nothing is written yet.

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

    It is lent each member's numbers, and keeps none. groups: all members' parameters. options: numbers of the methods
    that are not the same for all. steps: how many the optimizer takes in one step of the method. integers: whether the
    model may take them. l1s, fitted: as in `flat_groups`.
    """

    varying: tuple[Option, ...] = ()
    """The numbers that may differ, besides those of the optimizer."""
    steps = 1
    integers = True

    def __init__(self, methods: Sequence[Any], l1s: Sequence[float], fitted: Mapping[int, int]):
        self.method = methods[0]
        parameters = [list(method.model.parameters()) for method in methods]
        self.dtype, self.device = parameters[0][0].dtype, parameters[0][0].device
        self.groups = flat_groups(parameters, [method.optimizer for method in methods], l1s, fitted)
        values = {option: self._values(option, methods) for option in self.varying}
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
    def lent(self, options: Mapping[Option, Tensor], buffers: Iterable[Tensor] = ()) -> Iterator[None]:
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

    def step(self, state: State, x: Tensor, y: Tensor) -> Outcome:
        """One mini-batch, but for the last step of the optimizer. Changes nothing."""
        raise NotImplementedError

    def end_epoch(self, state: State) -> dict[str, Any]:
        """`State.own` after a pass over the data."""
        return state.own


class AltMinTemplate(Template):
    """`AltMin.step` for one member."""

    varying = (
        *(Option("codes", name) for name in ("lr", "momentum", "share")),
        *(Option("weights", name) for name in ("forget", "damping", "rate")),
        *(Option("penalty", name) for name in ("increment", "growth", "maximum")),
    )

    def __init__(self, methods: Sequence[Any]):
        places = {id(p): place for place, p in enumerate(methods[0].model.parameters())}
        self.places = [[places[id(p)] for p in block] for block in methods[0].theta]
        rests = [getattr(method.weights, "rest", method.weights) for method in methods]
        fitted = {} if rests[0] is methods[0].weights else {l: self.places[l] for l in methods[0].weights.trained}
        super().__init__(methods, [rest.l1 for rest in rests], {place: l for l in fitted for place in fitted[l]})
        self.rest, self.steps = rests[0], rests[0].steps
        self.integers = self.method.chain.blocks[0].takes_integers
        self.fitted = {l: n for l in fitted for n, group in enumerate(self.groups) if group.places == fitted[l]}

    def read(self, method: Any) -> dict[str, Any]:
        memories, number = {}, {"dtype": torch.float64, "device": self.device}
        for l in self.fitted:
            p, width = method.theta[l], sum(q[0].numel() for q in method.theta[l])
            empty = Kept(p[0].new_zeros(width, width), p[0].new_zeros(len(p[0]), width), 0.0)
            kept = method.weights.kept.get(l, empty)
            memories[l] = kept._replace(samples=torch.as_tensor(kept.samples, **number))
        return {"mu": torch.tensor(method.penalty.value, **number), "memories": memories}

    def write(self, method: Any, own: dict[str, Any]) -> None:
        method.penalty.value = own["mu"].item()
        for l, kept in own["memories"].items():
            if kept.samples:
                method.weights.kept[l] = kept._replace(samples=kept.samples.item())

    def step(self, state: State, x: Tensor, y: Tensor) -> Outcome:
        am, mu, theta = self.method, state.own["mu"], self._theta(state.rows)
        buffers, fits, rows = [value.clone() for value in state.buffers], {}, {}

        def measure(l: int, residual: Residual) -> Any:
            return am.weights.measure(l, theta[l], residual)

        with self.lent(state.options, buffers):
            moved = move_codes(am.chain, theta, am.codes, am.loss, x, y, mu.to(self.dtype), measure)
            for m, saved in moved.statistics:
                m.commit(saved)
            for l, n in self.fitted.items():
                fits[l] = am.weights.fit(theta[l], moved.found[l], state.own["memories"][l])
                rows[n] = {"weights": state.rows[n]["weights"] + self.groups[n].flat(fits[l].changes)}
            mu = grown(mu, am.penalty.increment, 1.0, am.penalty.maximum)
        inner, grads = self._inner_steps(state, theta, {l: moved.found[l] for l in self.rest.blocks})
        own = {"mu": mu, "memories": {l: fit.kept for l, fit in fits.items()}}
        finite, counts = verdict(moved), state.counts + self.steps
        for fit in fits.values():
            finite = finite & fit.finite
        objective = torch.as_tensor(moved.objective)
        return Outcome(moved.loss, objective, finite, grads, rows | inner, buffers, counts, own)

    def _inner_steps(
        self, state: State, first: Theta, found: dict[int, Any]
    ) -> tuple[dict[int, Row], list[list[Tensor]]]:
        """All steps of the optimizer but the last: the groups' rows then, and the gradients there.

        found: of every block its gradients; its residual if there is more than one step."""
        if self.steps == 1:
            return {}, self._grads(found)
        rows, theta, residuals = list(state.rows), first, found
        for k in range(1, self.steps + 1):
            grads = self._grads({l: self.rest.grads(l, theta[l], residual) for l, residual in residuals.items()})
            if k == self.steps:
                break
            for n, group in enumerate(self.groups):
                if group.optimized:
                    c = coefficients(state.rates[n], state.counts + k, self.dtype)
                    rows[n] = group.stepped(rows[n], grads[n], c)
            theta = self._theta(rows)
            residuals = {l: self.rest.after(l, residual, first[l], theta[l]) for l, residual in found.items()}
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
        return clipped(grads, self.rest.clip_norm)

    def end_epoch(self, state: State) -> dict[str, Any]:
        penalty = self.method.penalty
        with self.lent(state.options):
            return {**state.own, "mu": grown(state.own["mu"], 0.0, penalty.growth, penalty.maximum)}


class BackpropTemplate(Template):
    """`Backprop.step` for one member."""

    def __init__(self, methods: Sequence[Any]):
        super().__init__(methods, [0.0] * len(methods), {})
        self.names = [name for name, _ in self.method.model.named_parameters()]

    def step(self, state: State, x: Tensor, y: Tensor) -> Outcome:
        parts = [group.parts(row["weights"]) for group, row in zip(self.groups, state.rows, strict=True)]

        def loss(trained: list[list[Tensor]]) -> tuple[Tensor, list[Tensor]]:
            buffers = [value.clone() for value in state.buffers]
            given: dict[str, Tensor] = {}
            for group, own, other in zip(self.groups, trained, parts, strict=True):
                given |= zip((self.names[place] for place in group.places), own or other, strict=True)
            with self.lent({}, buffers), products.autocast(x):
                return self.method.loss(torch.func.functional_call(self.method.model, given, (x,)), y), buffers

        trained = [own if group.optimized else [] for group, own in zip(self.groups, parts, strict=True)]
        grads, (value, buffers) = torch.func.grad_and_value(loss, has_aux=True)(trained)
        grads = clipped(grads, self.method.clip_norm)
        return Outcome(value, value, value.isfinite(), grads, {}, buffers, state.counts + 1, {})


TEMPLATES: dict[type, type[Any]] = {AltMin: AltMinTemplate, Backprop: BackpropTemplate}
"""The methods that can be members."""


def clipped(grads: list[list[Tensor]], largest: float | None) -> list[list[Tensor]]:
    """A member's gradients, shortened to the norm `largest` of all together, as torch.nn.utils.clip_grad_norm_ does."""
    if largest is None or not any(grads):
        return grads
    norm = sum(g.square().sum() for group in grads for g in group) ** 0.5
    factor = (largest / (norm + 1e-6)).clamp_max(1.0)
    return [[g * factor for g in group] for group in grads]


def buffers_of(method: Any) -> list[list[tuple[nn.Module, str]]]:
    """Of every buffer of a method's model all modules that have it, and its name there."""
    if isinstance(method, AltMin):
        return method.chain.buffers()
    return [[(m, name)] for m in method.model.modules() for name, value in m._buffers.items() if value is not None]


def _put(slots: Iterable[Sequence[tuple[Any, str]]], values: Iterable[Any]) -> None:
    for places, value in zip(slots, values, strict=False):
        for table, name in places:
            table[name] = value
