"""The co-activation memory: Adam's step of each layer, turned into the direction that solves the layer's own regression
(see `layer_memory`)."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from altmin.calculus import Params
from altmin.calculus.context import Context
from altmin.calculus.graph import Graph
from altmin.common.errors import demand, demand_fraction
from altmin.core.chain import Block
from altmin.core.codes.problem import Problem
from altmin.core.weights.adam_sgd import BETAS
from altmin.core.weights.layer_memory import MANY_ROWS, Layer, LayerMemory, tiny
from altmin.core.weights.local import LocalAdam, can_follow, clipped, count_up, in_parts, norms
from altmin.core.weights.rule import ByBlock, Change, Contribution, Proposal, State

POSITIONS = 16
"""Number of places, about, of an image or a sequence that enter the memory of a layer."""


def layers(block: Block, saved: Sequence[Any] | None = None) -> Iterator[tuple[int, Any, int, Any]]:
    """Yield for each matrix of a block that acts on known inputs, also inside graphs, and is used once: its number
    among the block's parameters; the map; which of the map's `matrices` it is; and of `saved`, of the core's modules,
    what belongs to the map."""
    for i, (m, of) in enumerate(block.core.pairs):
        inner = [(m, 0, None if saved is None else saved[i])]
        if isinstance(m, Graph):
            nodes = [None] * len(m.maps) if saved is None else saved[i].saved
            inner = [] if m.tied else list(zip(m.maps, m.first, nodes, strict=True))
        for layer, first, values in inner:
            for k, number in enumerate(layer.matrices):
                yield of.start + first + number, layer, k, values


def sampled(m: Any, x: Tensor, context: Context, rows: int) -> tuple[Tensor, Tensor | None, float]:
    """Return what the memory of a layer m takes from its inputs x: about so many rows, their weights, and the factor
    that makes their sum one over all inputs divided by the number of places."""
    places = POSITIONS if x.ndim > 2 else 1
    step = max(1, context.count(len(x)) * places // rows)
    chosen = context.every(len(x), step)
    x = x[chosen]
    a = m.rows(x, POSITIONS)
    repeats = max(1, a.shape[-2] // max(1, len(x)))
    weights = None if context.weights is None else context.weights[chosen].repeat_interleave(repeats)
    return a, weights, step / repeats


class CoActivationMemory(LocalAdam):
    """Adam's steps, those of layers in the direction that solves the layer's regression, with a memory of its
    inputs (see `layer_memory`). The weights of linear layers, convolutions and recurrent layers have one, also inside
    branches; all other parameters (biases, normalisations, embeddings, transposed and depthwise convolutions, parts
    through autograd) take steps of Adam.

    lr: the learning rate, with the meaning that it has for Adam. beta: of the momentum. forget: of the memory, at each
    refresh. damping: of the solve, relative to the mean square of an input. rank: the number of inputs up to which a
    layer's memory is exact. weight_decay: decoupled, as in AdamW. clip_norm, decay_biases: as in `LocalAdam`. every:
    updates between two refreshes of the memories, after the first ones. rows: about how many inputs of a mini-batch
    enter the memory of a layer in a refresh.
    """

    kinds = 2

    def __init__(  # noqa: PLR0913
        self,
        lr: float = 0.004,
        beta: float = 0.9,
        forget: float = 0.6,
        damping: float = 1.0,
        rank: int = 32,
        weight_decay: float = 0.0,
        decay_biases: bool = True,
        clip_norm: float | None = None,
        every: int = 40,
        rows: int = 100,
    ):
        self.memory, self.rows = (
            checked(type(self).__name__, LayerMemory(forget, damping, rank, every), beta, rows),
            rows,
        )
        super().__init__(lr, (beta, BETAS[1]), 1e-8, weight_decay, True, 0.0, 1, clip_norm, decay_biases)

    def kind(self, step: int) -> int:
        """Return 1 for an update that refreshes the memories, 0 for any other."""
        return int(self.memory.is_due(step))

    def init(self, block: Block, parameters: Params) -> State:
        """Return Adam's state, and as "memory" that of each layer by the number of its weights."""
        memories = {i: self.memory.init(parameters[i], m.groups) for i, m, *_ in layers(block)}
        return {**super().init(block, parameters), "memory": memories}

    def measure(self, block: Block, parameters: Params, problem: Problem, kind: int = 0) -> Contribution:
        """Return the gradients of all parameters, zero for frozen ones; the number of rows per sample of each layer,
        which is the same on all ranks; and in an update that refreshes the memories what each takes from the
        mini-batch."""
        grads, context = super().measure(block, parameters, problem, kind), problem.context
        memory, places = {}, {}
        n = context.samples(problem.delta)
        for i, m, k, saved in layers(block, problem.saved):
            x = m.inputs(saved)[k]
            places[i] = float(m.places(x))
            if kind:
                a, weights, times = sampled(m, x, context, self.rows)
                with torch.autocast(a.device.type, enabled=False):
                    memory[i] = self.memory.measure(a, times / n, weights)
        pairs = zip(grads, block.parameters(), strict=True)
        grads = [g if p.requires_grad else torch.zeros_like(g) for g, p in pairs]
        return {"grads": grads, "memory": memory, "places": places}

    def gradients(self, contribution: Contribution) -> Sequence[Tensor]:
        grads: Sequence[Tensor] = contribution["grads"]
        return grads

    def turned(
        self, changes: dict[int, Change], states: ByBlock, grads: ByBlock, contributions: ByBlock, rates: ByBlock
    ) -> dict[int, Change]:
        rows = self._layers(
            {l: after["exp_avg"] for l, (_, after) in changes.items()}, states, grads, contributions, rates
        )
        Us, refreshed = self.memory.directions([layer for *_, layer in rows], next(iter(rates.values()))["beta1"])
        moves = {l: list(moves) for l, (moves, _) in changes.items()}
        memories = {l: dict(states[l]["memory"]) for l in changes}
        for (l, i, layer), U, new in zip(rows, Us, refreshed, strict=True):
            length, size = torch.linalg.vector_norm(moves[l][i]), torch.linalg.vector_norm(U)
            moves[l][i] = U * (-length / size.clamp_min(tiny(U)))
            memories[l][i] = {**layer.state, **new}
        return {l: (moves[l], {**after, "memory": memories[l]}) for l, (_, after) in changes.items()}

    def _layers(
        self, means: ByBlock, states: ByBlock, grads: ByBlock, contributions: ByBlock, rates: ByBlock
    ) -> list[tuple[int, int, Layer]]:
        """Return the layers of all blocks with their blocks and numbers."""
        rows = []
        for l, contribution in contributions.items():
            for i, places in contribution["places"].items():
                many = places * float(rates[l]["samples"]) >= MANY_ROWS
                layer = Layer(means[l][i], grads[l][i], states[l]["memory"][i], contribution["memory"].get(i), many)
                rows.append((l, i, layer))
        return rows

    def propose(self, theta: ByBlock, states: ByBlock, contributions: ByBlock, rates: ByBlock) -> Proposal:
        grads = clipped({l: self.gradients(contribution) for l, contribution in contributions.items()}, self.clip_norm)
        means = {l: states[l]["exp_avg"] for l in contributions}
        layers = {(l, i): layer for l, i, layer in self._layers(means, states, grads, contributions, rates)}
        rows, steps, checks = [], [states[l]["step"] for l in contributions if theta[l]], []
        for l in contributions:
            state, lr, decays = states[l], rates[l]["lr"], self._decays(rates[l])
            for i, (p, g) in enumerate(zip(theta[l], grads[l], strict=True)):
                if p.requires_grad:
                    moments = state["exp_avg"][i], state["exp_avg_sq"][i]
                    rows.append(Row(p, g, state["step"], *moments, lr, decays[i], layers.get((l, i))))
        calls: dict[Any, list[Any]] = {}
        for row in rows:
            calls.setdefault((row.lr, row.decay), []).append((row.p, row.g))
            if row.layer is not None and row.layer.new is not None:
                checks.append(is_known(row.layer.new).all())
        finite = torch.stack([can_follow(calls), *checks]).all()

        def apply(ok: Tensor | None) -> None:
            count_up(steps, ok)
            with torch.autocast(steps[0].device.type, enabled=False):
                step_(self.memory, self.betas[0], rows, ok)

        return Proposal(finite, apply)


class Row(NamedTuple):
    """A parameter's step: its gradient, the number of the step, Adam's moments, learning rate and weight decay, and the
    layer whose weights it is, if that has a memory."""

    p: Tensor
    g: Tensor
    step: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor
    lr: Any
    decay: Any
    layer: Layer | None


def step_(memory: LayerMemory, beta: float, rows: Sequence[Row], ok: Tensor | None = None) -> None:
    """Take the steps of parameters in place, none where not ok: those of weights with a memory in the direction of
    their layer, as far as Adam would go, all others by Adam."""
    if ok is not None:  # numbers that are not finite would remain so times 0
        rows = [row if row.layer is None else _accepted(row, row.layer, ok) for row in rows]
    targets = [row.p if row.layer is None else torch.empty_like(row.exp_avg) for row in rows]
    if buffers := [[target] for row, target in zip(rows, targets, strict=True) if row.layer is not None]:
        torch._foreach_zero_([part for (part,) in in_parts(buffers)])
    calls: dict[Any, list[list[Tensor]]] = {}
    turned: dict[torch.device, list[tuple[Row, Layer, Tensor]]] = {}
    for row, target in zip(rows, targets, strict=True):
        g = row.g if row.g.dtype == target.dtype else row.g.to(target.dtype)
        g = g if g.stride() == target.stride() else torch.empty_like(target).copy_(g)  # as the kernel requires
        decay = row.decay if row.layer is None else 0.0
        calls.setdefault((row.lr, decay, target.dtype, target.device), []).append(
            [target, g, row.exp_avg, row.exp_avg_sq, row.step]
        )
        if row.layer is not None:
            turned.setdefault(target.device, []).append((row, row.layer._replace(G=g), target))
    for (lr, decay, *_), call in calls.items():
        params, grads, means, squares, steps = map(list, zip(*in_parts(call), strict=True))
        options: Any = {"lr": lr, "beta1": beta, "beta2": BETAS[1], "eps": 1e-8, "weight_decay": decay}
        options["found_inf"] = None if ok is None else 1.0 - ok.float()
        torch._fused_adamw_(params, grads, means, squares, [], steps, **options, amsgrad=False, maximize=False)
    for group in turned.values():
        _turn(memory, beta, group, ok)


def _turn(memory: LayerMemory, beta: float, layers: Sequence[tuple[Row, Layer, Tensor]], ok: Tensor | None) -> None:
    """Move weights in the directions of their layers, as far as Adam's steps, which are given."""
    moves = [move for *_, move in layers]
    Us, changes = memory.directions([layer for _, layer, _ in layers], beta, in_place=True)
    lengths, sizes = norms([*moves, *Us]).chunk(2)
    factors = (lengths / sizes.clamp_min(tiny(sizes))).unbind()
    pairs = zip(layers, changes, strict=True)
    olds = [layer.state[name] for (_, layer, _), change in pairs for name in change]
    news = [new for change in changes for new in change.values()]
    if ok is None and news:
        torch._foreach_copy_(olds, news)
    elif ok is not None:
        for old, new in zip(olds, news, strict=True):
            torch.where(ok, new, old, out=old)
    for row, *_ in layers:
        if isinstance(row.decay, Tensor) or row.decay:
            shrinks = row.lr * row.decay if ok is None else (row.lr * row.decay * ok).to(row.p.dtype)
            row.p.mul_(1 - shrinks)
    params = [row.p for row, *_ in layers]
    Us, scales = ([t.to(p.dtype) for t, p in zip(ts, params, strict=True)] for ts in (Us, factors))
    torch._foreach_addcmul_(params, Us, scales, value=-1)


def _accepted(row: Row, layer: Layer, ok: Tensor) -> Row:
    """Return a row whose gradient and contribution to the memory are zero where not ok."""
    if layer.new is not None:
        layer = layer._replace(new={name: torch.where(ok, t, 0.0) for name, t in layer.new.items()})
    return row._replace(g=torch.where(ok, row.g, 0.0), layer=layer)


def is_known(new: dict[str, Tensor]) -> Tensor:
    """Return whether what a memory takes from a mini-batch is finite: the mean square of inputs bounds all of it."""
    return new["scale"] < torch.inf


def checked(of: str, memory: LayerMemory, beta: float, rows: int) -> LayerMemory:
    """Return the settings of a memory. ValueError for options of a rule or of an optimizer that cannot be."""
    demand(of, "damping", memory.damping, above=True)
    for name, count in {"rank": memory.rank, "every": memory.every, "rows": rows}.items():
        demand(of, name, count, low=1, whole=True)
    demand_fraction(of, beta=beta, forget=memory.forget)
    return memory
