"""The co-activation memory, solved: every layer's own regression instead of a step downhill (see `layer_memory`)."""

from collections.abc import Iterator, Sequence
from typing import Any

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
from altmin.core.weights.rule import ByBlock, Change, Rates, WeightRule, as_matrix

POSITIONS = 16
"""About how many places of an image or a sequence enter the memory of a layer."""


def layers(block: Block, saved: Sequence[Any] | None = None) -> Iterator[tuple[Any, int, Any]]:
    """Yield the linear maps of a block, also inside graphs, whose parameters are all trained, and used once; the number
    of the first of these among the block's; and of `saved`, of the core's modules, what belongs to the map."""
    for i, (m, of) in enumerate(block.core.pairs):
        inner = [(m, 0, None if saved is None else saved[i])]
        if isinstance(m, Graph):
            nodes = [None] * len(m.maps) if saved is None else saved[i].saved
            inner = [] if m.tied else list(zip(m.maps, m.first, nodes, strict=True))
        for layer, first, of_layer in inner:
            trained = all(layer.module.get_parameter(name).requires_grad for name in layer.names)
            if isinstance(layer, Affine) and layer.groups and trained:
                yield layer, of.start + first, of_layer


def inputs(m: Any, x: Tensor, context: Context, rows: int) -> tuple[Tensor, Tensor | None, float]:
    """Return what the memory of a linear map m takes from its inputs x: about so many rows, their weights, and the
    factor that makes their sum one over all inputs divided by the number of places."""
    places = POSITIONS if x.ndim > 2 else 1
    step = max(1, context.count(len(x)) * places // rows)
    chosen = context.every(len(x), step)
    x = x[chosen]
    a = m.rows(x, POSITIONS)
    repeats = max(1, a.shape[-2] // max(1, len(x)))
    weights = None if context.weights is None else context.weights[chosen].repeat_interleave(repeats)
    return a, weights, step / repeats


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
        demand(of, "clip_norm", 1 if clip_norm is None else clip_norm, above=True)
        self.memory = checked(of, LayerMemory(beta, forget, damping, length, rank, every), lr, weight_decay, rows)
        self.lr, self.weight_decay, self.decay_biases = lr, weight_decay, decay_biases
        self.clip_norm, self.rows = clip_norm, rows

    def init(self, block: Block, parameters: Params) -> dict[str, Any]:
        """Return as "memory" the state of each layer by the number of its first parameter, and as "adam" that of every
        other parameter by its number."""
        rest, memory = dict(enumerate(parameters)), {}
        for layer, first, _ in layers(block):
            weights = [rest.pop(i) for i in range(first, first + len(layer.names))]
            memory[first] = self.memory.init(as_matrix(weights), layer.groups)
        adam_states = {i: moments(p) for i, p in rest.items()}
        return {"steps": parameters[0].new_zeros(()), "memory": memory, "adam": adam_states}

    kinds = 2

    def kind(self, step: int) -> int:
        """Return 1 for an update that factorises the memories again, 0 for any other."""
        return int(self.memory.is_due(step))

    def numbers(self) -> dict[str, float]:
        return {"lr": self.lr, "weight_decay": self.weight_decay}

    def measure(self, block: Block, parameters: Params, problem: Problem) -> dict[str, Any]:
        """Return the gradients of all parameters, zero for frozen ones, and of each layer what its memory takes from
        the mini-batch."""
        grads, context, memory = super().measure(block, parameters, problem), problem.context, {}
        n = context.samples(problem.delta)
        for layer, first, saved in layers(block, problem.saved):
            a, weights, times = inputs(layer, layer.input(saved), context, self.rows)
            with torch.autocast(a.device.type, enabled=False):
                memory[first] = self.memory.measure(a, times / n, weights)
        pairs = zip(grads, block.parameters(), strict=True)
        return {"grads": [g if p.requires_grad else torch.zeros_like(g) for g, p in pairs], "memory": memory}

    def update(self, parameters: Params, state: Any, contribution: Any, rates: Rates) -> Change:
        return self.update_all({0: parameters}, {0: state}, {0: contribution}, {0: rates})[0]

    def update_all(self, theta: ByBlock, states: ByBlock, contributions: ByBlock, rates: ByBlock) -> dict[int, Change]:
        grads = clipped({l: contributions[l]["grads"] for l in contributions}, self.clip_norm)
        changes: dict[int, list[Any]] = {l: list(theta[l]) for l in contributions}
        after: dict[int, Any] = {l: {"steps": states[l]["steps"] + 1, "memory": {}, "adam": {}} for l in contributions}
        places, problems = [], []
        for l, new in contributions.items():
            steps, lr, refresh = after[l]["steps"], rates[l]["lr"], rates[l]["kind"] == 1
            for i, state in states[l]["memory"].items():
                numbers = slice(i, i + 1 + (state["M"].shape[1] > theta[l][i][0].numel()))
                places.append((l, numbers))
                problems.append(Given(state, new["memory"][i], as_matrix(grads[l][numbers]), steps, lr, refresh))
            c = adam_coefficients(steps, lr)
            for i, state in states[l]["adam"].items():
                changes[l][i], m, v = adam(state["exp_avg"], state["exp_avg_sq"], grads[l][i], c)
                after[l]["adam"][i] = {"exp_avg": m, "exp_avg_sq": v}
        for (l, numbers), (change, state) in zip(places, self.memory.update(problems), strict=True):
            changes[l][numbers] = parted(change, theta[l][numbers])
            after[l]["memory"][numbers.start] = state
        return {l: (self._decayed(changes[l], theta[l], rates[l]), after[l]) for l in contributions}

    def _decayed(self, changes: list[Tensor], parameters: Params, rates: Rates) -> list[Tensor]:
        decay = rates["weight_decay"]
        if not (isinstance(decay, Tensor) or decay):
            return changes
        shrinks, times = [d or self.decay_biases for d in rates["decayed"]], rates["lr"] * decay
        return [c - times * p if d else c for c, d, p in zip(changes, shrinks, parameters, strict=True)]


def parted(U: Tensor, parameters: Params) -> list[Tensor]:
    """Return the parameters that `as_matrix` has side by side."""
    parts = zip(parameters, U.split([q[0].numel() for q in parameters], 1), strict=True)
    return [part.reshape(q.shape).to(q.dtype) for q, part in parts]


def moments(p: Tensor) -> dict[str, Tensor]:
    """Return Adam's state before the first step of a parameter without a memory."""
    return {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}


def adam_coefficients(steps: Tensor, lr: Any) -> dict[str, Any]:
    """Return those of Adam's step for parameters without a memory."""
    return coefficients({"lr": lr, "beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS}, steps)


def checked(of: str, memory: LayerMemory, lr: float, weight_decay: float, rows: int) -> LayerMemory:
    """Return the settings of a memory. ValueError for options of a rule or of an optimizer that cannot be."""
    demand(of, "lr", lr)
    demand(of, "weight_decay", weight_decay)
    demand(of, "damping", memory.damping, above=True)
    for name, count in {"rank": memory.rank, "every": memory.every, "rows": rows}.items():
        demand(of, name, count, low=1, whole=True)
    demand_fraction(of, beta=memory.beta, forget=memory.forget)
    if memory.length not in LENGTHS:
        raise ValueError(f"length of {of} is {' or '.join(map(repr, LENGTHS))}, given {memory.length!r}")
    return memory
