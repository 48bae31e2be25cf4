"""A graph of maps: again a map."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from altmin.calculus.base import Map, Params, Saved
from altmin.calculus.context import LOCAL, Context
from altmin.calculus.cut_values import CutValues, Layout, flat, parts
from altmin.calculus.multi_input import Direction


class Node(NamedTuple):
    """One map of a graph. inputs: the numbers of the values that it takes. names: of its parameters in the module."""

    map: Map
    inputs: tuple[int, ...]
    names: tuple[str, ...] = ()

    def of(self, values: Sequence[Any]) -> Any:
        """Return the values of its inputs, as the map takes them."""
        return [values[i] for i in self.inputs] if self.map.several else values[self.inputs[0]]

    def moves(self, us: Sequence[Direction]) -> bool:
        return any(us[i] is not None for i in self.inputs)


class Ends(NamedTuple):
    """Ends of a graph. inputs: how many there are. outputs: their numbers as values. entry, exit: how these are one
    code; None where there is one value."""

    inputs: int
    outputs: tuple[int, ...]
    entry: CutValues | None = None
    exit: CutValues | None = None


class Point(NamedTuple):
    """Values that a pass of a graph saves: its input code, the layouts of its input and output codes, and those that
    each of its maps saves."""

    x: Tensor
    entry: Layout
    exit: list[torch.Size]
    saved: list[Saved]


class Graph(Map):
    """Maps whose values go to several others. Value i is the i-th input for i < `ends.inputs`, then that of node
    i - `ends.inputs`; a node takes values from before it.

    vjp and grads go through the nodes from the last to the first, and each value sums the gradients from its users;
    the other operations go from the first to the last. Parameters are passed as a flat list, in the order of the nodes,
    each once.
    """

    def __init__(self, module: nn.Module, nodes: Sequence[Node], ends: Ends):
        super().__init__(module)
        self.nodes, self.ends = tuple(nodes), ends
        self.maps = tuple(node.map for node in nodes)
        """Maps of the nodes, by number; torch.compile knows where these come from, and not those of a `Node`."""
        self.names = tuple(dict.fromkeys(name for node in nodes for name in node.names))
        self._numbers = [[self.names.index(name) for name in node.names] for node in nodes]
        """The numbers of each node's parameters; several may have one in common."""
        self.first = [numbers[0] if numbers else 0 for numbers in self._numbers]
        """The number of each node's first parameter; the others follow it, unless they are tied."""
        self.tied = sum(map(len, self._numbers)) > len(self.names)
        """True if nodes have a parameter in common."""
        self.uses_autograd = any(m.uses_autograd for m in self.inner)
        self._all = [True] * (ends.inputs + len(self.nodes))
        self._trained = [False] * ends.inputs
        for node in nodes:
            self._trained.append(bool(node.names) or any(self._trained[i] for i in node.inputs))

    @property
    def mixes_samples(self) -> bool:  # type: ignore[override]
        return any(m.mixes_samples for m in self.inner)

    @property
    def inner(self) -> Sequence[Any]:
        return self.maps

    def _of(self, p: Params, i: int) -> Params:
        """Return the parameters of node i."""
        return [p[j] for j in self._numbers[i]]

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Point]:
        layout = Layout([x.shape], []) if self.ends.entry is None else self.ends.entry.take()
        return self._run(x, layout, lambda i, x: self.maps[i].forward(self._of(p, i), x, context))

    def replay(self, p: Params, saved: Point, x: Tensor) -> tuple[Tensor, Point]:
        y, point = self._run(x, saved.entry, lambda i, x: self.maps[i].replay(self._of(p, i), saved.saved[i], x))
        if self.ends.exit is not None:
            self.ends.exit.take()  # it is not used otherwise
        return y, point

    def _run(
        self, x: Tensor, layout: Layout, value: Callable[[int, Any], tuple[Tensor, Saved]]
    ) -> tuple[Tensor, Point]:
        values: list[Any] = [*parts(x, layout.shapes), *layout.aside]
        states = []
        for i, node in enumerate(self.nodes):
            y, saved = value(i, node.of(values))
            values.append(y)
            states.append(saved)
        outputs = [values[i] for i in self.ends.outputs]
        if self.ends.exit is None:
            return outputs[0], Point(x, layout, [outputs[0].shape], states)
        code = self.ends.exit.join(outputs)
        return code, Point(x, layout, [t.shape for t in outputs[: self.ends.exit.moving]], states)

    def vjp(self, p: Params, saved: Point, v: Tensor) -> Tensor:
        return _flat(self._back(p, saved, v, self._all, params=False)[0], saved.entry.shapes, v)

    def grads(self, p: Params, saved: Point, v: Tensor) -> Params:
        """Return the gradients of the parameters, propagating v no further than to the first of them."""
        return self._back(p, saved, v, self._trained, params=True)[1]

    def vjp_and_grads(self, p: Params, saved: Point, v: Tensor) -> tuple[Tensor, Params]:
        sent, grads = self._back(p, saved, v, self._all, params=True)
        return _flat(sent, saved.entry.shapes, v), grads

    def _back(
        self, p: Params, saved: Point, v: Tensor, needed: Sequence[bool], params: bool
    ) -> tuple[list[Direction], list[Tensor]]:
        """The gradients at the inputs, where every value that needs one sums those from its users; and the gradients
        of the parameters, if requested."""
        sent: list[Direction] = [None] * (self.ends.inputs + len(self.nodes))
        for i, part in zip(self.ends.outputs, parts(v, saved.exit), strict=False):
            sent[i] = _added(sent[i], part)
        sums: list[Direction] = [None] * len(self.names)
        for i in reversed(range(len(self.nodes))):
            (_, inputs, names), place, weights = self.nodes[i], self.ends.inputs + i, self._of(p, i)
            m = self.maps[i]
            back, sent[place] = sent[place], None
            trains, sends = params and bool(names), any(needed[j] for j in inputs)
            gs: Any = None
            if back is None:
                continue
            grads: Params = ()
            if trains and sends:
                gs, grads = m.vjp_and_grads(weights, saved.saved[i], back)
            elif trains:
                grads = m.grads(weights, saved.saved[i], back)
            elif sends:
                gs = m.vjp(weights, saved.saved[i], back)
            for j, g in zip(self._numbers[i], grads, strict=False):
                sums[j] = _added(sums[j], g)
            for j, g in zip(inputs, gs if m.several else [gs], strict=False) if sends else ():  # `Aside` sends none
                if g is not None and needed[j]:
                    sent[j] = _added(sent[j], g)
        return sent, [torch.zeros_like(q) if g is None else g for q, g in zip(p, sums, strict=True)] if params else []

    def jvp(self, p: Params, saved: Point, u: Tensor) -> Tensor:
        us = self._directions(saved, u)
        for i, node in enumerate(self.nodes):
            moves = node.moves(us)
            us.append(self.maps[i].jvp(self._of(p, i), saved.saved[i], node.of(us)) if moves else None)
        return _flat([us[i] for i in self.ends.outputs], saved.exit, u)

    def _directions(self, saved: Point, u: Tensor) -> list[Direction]:
        return [*parts(u, saved.entry.shapes), *[None] * len(saved.entry.aside)]

    def functional(self) -> "Graph":
        maps = [m.functional() for m in self.maps]
        if all(new is old for new, old in zip(maps, self.maps, strict=True)):
            return self
        nodes = [node._replace(map=m) for node, m in zip(self.nodes, maps, strict=True)]
        return Graph(self.module, nodes, self.ends)

    def input(self, saved: Point) -> Tensor:
        return saved.x

    def kept(self, saved: Point) -> Any:
        values = [m.kept(s) for m, s in zip(self.maps, saved.saved, strict=True)]
        return values if any(what is not None for what in values) else None

    def checked(self, values: Any) -> list[Tensor]:
        pairs = zip(self.maps, values, strict=True)
        return [t for m, what in pairs if what is not None for t in m.checked(what)]

    def commit(self, values: Any) -> None:
        for m, what in zip(self.maps, values, strict=True):
            if what is not None:
                m.commit(what)


def _added(a: Direction, b: Tensor) -> Tensor:
    return b if a is None else a + b


def _flat(parts: Sequence[Direction], shapes: Sequence[torch.Size], like: Tensor) -> Tensor:
    """Return the first parts, of these shapes, as one code; zeros for None."""
    return flat([like.new_zeros(s) if part is None else part for part, s in zip(parts, shapes, strict=False)])
