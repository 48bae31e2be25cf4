"""The co-activation memory, solved: every layer's own regression instead of a step downhill (see `layer_memory`)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from altmin.calculus import Params
from altmin.calculus.context import Context
from altmin.calculus.graph import Graph
from altmin.calculus.linear import Affine
from altmin.common.errors import demand, demand_fraction
from altmin.core.chain import Block
from altmin.core.codes.problem import Problem
from altmin.core.weights.adam_sgd import BETAS, EPS, adam, coefficients
from altmin.core.weights.layer_memory import LENGTHS, Given, LayerMemory
from altmin.core.weights.local import clipped
from altmin.core.weights.rule import Change, Rates, WeightRule, as_matrix

POSITIONS = 16
"""About how many places of an image or a sequence enter the memory of a layer."""


class Layer(NamedTuple):
    """A linear map of a block: where it is among the core's maps, and inside a graph; the number of its first parameter
    among the block's."""

    map: Any
    core: int
    node: int | None
    first: int

    def input(self, saved: Sequence[Any]) -> Tensor:
        of = saved[self.core]
        return self.map.input(of if self.node is None else of.saved[self.node])


def layers(block: Block) -> Iterator[Layer]:
    """The linear maps of a block, also inside graphs, whose parameters are all trained, and used once."""
    for core, (m, of) in enumerate(block.core.pairs):
        inner: list[tuple[Any, int | None, int]] = [(m, None, 0)]
        if isinstance(m, Graph):
            inner = [] if m.tied else [(each, i, m.first[i]) for i, each in enumerate(m.maps)]
        for each, node, start in inner:
            trained = all(each.module.get_parameter(name).requires_grad for name in each.names)
            if isinstance(each, Affine) and each.groups and trained:
                yield Layer(each, core, node, of.start + start)


def inputs(m: Any, x: Tensor, context: Context, rows: int) -> tuple[Tensor, Tensor | None, float]:
    """What the memory of a linear map m takes from its inputs x: about so many rows, their weights, and the factor that
    makes their sum one over all inputs divided by the number of places."""
    places = POSITIONS if x.ndim > 2 else 1
    step = max(1, context.count(len(x)) * places // rows)
    chosen = context.every(len(x), step)
    x = x[chosen]
    a = m.rows(x, POSITIONS)
    each = max(1, a.shape[-2] // max(1, len(x)))
    weights = None if context.weights is None else context.weights[chosen].repeat_interleave(each)
    return a, weights, step / each


class CoActivationMemory(WeightRule):
    """Solves each layer's regression with a memory of its inputs (see `layer_memory`). Linear layers and convolutions
    have one, also inside branches; all other parameters (normalisations, embeddings, transposed convolutions, parts
    through autograd, partly frozen layers) take steps of Adam.

    lr: the learning rate, for both parts with the meaning that it has for Adam. beta: of the momentum. forget: of the
    memory. damping: of the solve, relative to the mean square of an input. length: "adam" for the norm of Adam's step,
    "fixed" for entries that are 0.2 lr in the mean square, as with torch.optim.Muon. rank: the number of inputs up to
    which a layer's memory is exact. weight_decay: decoupled, as in AdamW. decay_biases: whether it acts on parameters
    with one dimension too. clip_norm: the largest norm of all gradients together, as in
    `torch.nn.utils.clip_grad_norm_`; None for no limit. every: updates between two factorisations of the memories,
    after the first few; 1 for none without. rows: about how many inputs of a mini-batch enter the memory of a layer.
    """

    def __init__(  # noqa: PLR0913
        self,
        lr: float = 0.004,
        beta: float = 0.9,
        forget: float = 0.95,
        damping: float = 1.0,
        length: str = "adam",
        rank: int = 32,
        weight_decay: float = 0.0,
        decay_biases: bool = True,
        clip_norm: float | None = None,
        every: int = 10,
        rows: int = 100,
    ):
        of = type(self).__name__
        check_options(of, lr, weight_decay)
        if clip_norm is not None:
            demand(of, "clip_norm", clip_norm, above=True)
        layer_memory(of, beta, forget, damping, length, rank, every)
        demand(of, "rows", rows, low=1, whole=True)
        self.every, self.rows = every, rows
        self.lr, self.beta, self.forget, self.damping, self.length, self.rank = lr, beta, forget, damping, length, rank
        self.weight_decay, self.decay_biases, self.clip_norm = weight_decay, decay_biases, clip_norm

    @property
    def layer(self) -> LayerMemory:
        """The rule of one layer, with the present options: those of the members of an ensemble differ."""
        return LayerMemory(self.beta, self.forget, self.damping, self.length, self.rank, self.every)

    def init(self, block: Block, parameters: Params) -> dict[str, Any]:
        """ "memory": by the number of each layer's first parameter. "adam": by the number of the parameter."""
        of = {layer.first: layer for layer in layers(block)}
        held = {i + k for i, layer in of.items() for k in range(len(layer.map.names))}
        memory = {
            i: self.layer.init(as_matrix(parameters[i : i + len(layer.map.names)]), layer.map.groups)
            for i, layer in of.items()
        }
        rest = {j: moments(p) for j, p in enumerate(parameters) if j not in held}
        return {"steps": parameters[0].new_zeros(()), "memory": memory, "adam": rest}

    kinds = 2

    def kind(self, step: int) -> int:
        """1 for an update that factorises the memories again."""
        return int(self.layer.is_due(step))

    def numbers(self) -> dict[str, float]:
        return {"lr": self.lr, "weight_decay": self.weight_decay}

    def measure(self, block: Block, parameters: Params, problem: Problem) -> dict[str, Any]:
        """Gradients of all parameters, zero for frozen ones, and of each layer what its memory takes from the
        mini-batch."""
        grads, context, found = super().measure(block, parameters, problem), problem.context, {}
        n = context.samples(problem.delta)
        for layer in layers(block):
            a, weights, times = inputs(layer.map, layer.input(problem.saved), context, self.rows)
            with torch.autocast(a.device.type, enabled=False):
                found[layer.first] = self.layer.measure(a, times / n, weights)
        trained = [p.requires_grad for p in block.parameters()]
        grads = [g if t else torch.zeros_like(g) for g, t in zip(grads, trained, strict=True)]
        return {"grads": grads, "memory": found}

    def update(self, parameters: Params, state: Any, contribution: Any, rates: Rates) -> Change:
        return self.update_all({0: parameters}, {0: state}, {0: contribution}, {0: rates})[0]

    def update_all(
        self,
        theta: Mapping[int, Params],
        states: Mapping[int, Any],
        contributions: Mapping[int, Any],
        rates: Mapping[int, Rates],
    ) -> dict[int, Change]:
        steps = {l: states[l]["steps"] + 1 for l in contributions}
        grads = clipped({l: each["grads"] for l, each in contributions.items()}, self.clip_norm)
        places, given = [], []
        for l in contributions:
            for i, held in states[l]["memory"].items():
                own = slice(i, i + 1 + (held["M"].shape[1] > theta[l][i][0].numel()))
                G = as_matrix(grads[l][own])
                places.append((l, own))
                refresh = rates[l]["kind"] == 1
                given.append(Given(held, contributions[l]["memory"][i], G, steps[l], rates[l]["lr"], refresh))
        changes: dict[int, list[Any]] = {l: list(theta[l]) for l in contributions}
        after: dict[int, Any] = {l: {"steps": steps[l], "memory": {}, "adam": {}} for l in contributions}
        for (l, own), (change, held) in zip(places, self.layer.update(given), strict=True):
            changes[l][own] = parted(change, theta[l][own])
            after[l]["memory"][own.start] = held
        for l in contributions:
            c = adam_coefficients(steps[l], rates[l]["lr"])
            for j, held in states[l]["adam"].items():
                changes[l][j], m, v = adam(held["exp_avg"], held["exp_avg_sq"], grads[l][j], c)
                after[l]["adam"][j] = {"exp_avg": m, "exp_avg_sq": v}
        return {l: (self._decayed(changes[l], theta[l], rates[l]), after[l]) for l in contributions}

    def _decayed(self, changes: list[Tensor], parameters: Params, rates: Rates) -> list[Tensor]:
        decay = rates["weight_decay"]
        if not (isinstance(decay, Tensor) or decay):
            return changes
        shrinks, times = [d or self.decay_biases for d in rates["decayed"]], rates["lr"] * decay
        return [c - times * p if d else c for c, d, p in zip(changes, shrinks, parameters, strict=True)]


def parted(U: Tensor, parameters: Params) -> list[Tensor]:
    """The inverse of `as_matrix`."""
    parts = zip(parameters, U.split([q[0].numel() for q in parameters], 1), strict=True)
    return [part.reshape(q.shape).to(q.dtype) for q, part in parts]


def moments(p: Tensor) -> dict[str, Tensor]:
    """Return Adam's state before the first step of a parameter without a memory."""
    return {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}


def adam_coefficients(steps: Tensor, lr: Any) -> dict[str, Any]:
    """Return those of Adam's step for parameters without a memory."""
    return coefficients({"lr": lr, "beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS}, steps)


def check_options(of: str, lr: float, weight_decay: float) -> None:
    """ValueError for options of a rule that cannot be."""
    demand(of, "lr", lr)
    demand(of, "weight_decay", weight_decay)


def layer_memory(
    of: str, beta: float, forget: float, damping: float, length: str, rank: int, every: int
) -> LayerMemory:
    """The settings of a memory. ValueError for those that cannot be."""
    demand(of, "damping", damping, above=True)
    demand(of, "rank", rank, low=1, whole=True)
    demand(of, "every", every, low=1, whole=True)
    demand_fraction(of, beta=beta, forget=forget)
    if length not in LENGTHS:
        raise ValueError(f"length of {of} is {' or '.join(map(repr, LENGTHS))}, given {length!r}")
    return LayerMemory(beta, forget, damping, length, rank, every)
