"""`Piece`: a part of a module's graph as a module."""

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from altmin.calculus.cut_values import CutValues, parts, shortened
from altmin.graph.inline import copy_nodes, placeholders
from altmin.graph.inplace import IN_PLACE, changes_its_input
from altmin.graph.values import ORDERS

HIDDEN = {getattr, operator.getitem, "size", "dim", torch._assert, *(getattr(operator, name) for name in ORDERS)}
"""Nodes that a label leaves out: sizes, entries and assertions."""


class Segment(NamedTuple):
    """A part of a graph: its nodes in order, the nodes outside whose values they take, and those inside whose values
    others take. entry, exit: how these are one tensor, where there are several."""

    nodes: Sequence[fx.Node]
    inputs: Sequence[fx.Node]
    made: Sequence[fx.Node]
    entry: CutValues | None = None
    exit: CutValues | None = None

    @property
    def plain(self) -> bool:
        """Return whether it takes one value and makes one."""
        return self.entry is None and self.exit is None


class Piece(nn.Module):
    """A segment of a graph as a module.

    It holds the modules, parameters and buffers that its nodes use: those of `owner` themselves, not copies. It calls
    the modules, so their mode and their hooks count; its own mode does not. `graph` has copies of the nodes, by the
    names that the piece has for what they use, and runs as Python code that `torch.fx` writes.
    """

    def __init__(self, owner: nn.Module, segment: Segment):
        super().__init__()
        self.training = False
        nodes, inputs, made, self.entry, self.exit = segment
        self.graph = fx.Graph()
        values = {node: self.graph.placeholder(f"input_{i}") for i, node in enumerate(inputs)}
        names: dict[int, str] = {}
        for node in nodes:
            new = values[node] = self.graph.node_copy(node, values.__getitem__)
            new.meta = {}
            if node.op in ("call_module", "get_attr"):
                target = str(node.target)
                what = operator.attrgetter(target)(owner)
                new.target = names.setdefault(id(what), f"{target.replace('.', '_')}_{len(names)}")
                if isinstance(what, Tensor) and not isinstance(what, nn.Parameter):
                    self.register_buffer(new.target, what, persistent=False)
                else:
                    setattr(self, new.target, what)
        self.graph.output([values[node] for node in made])
        copies = [values[node] for node in nodes]
        self.in_place = any(changes_its_input(node, self) for node in copies)
        """Flag that it works on a copy of its input, which might be changed otherwise."""
        shown = [node for node in copies if node.op != "get_attr" and node.target not in HIDDEN] or copies
        self.label = f"({shortened([self._label(node) for node in shown])})"
        self.compute = compiled(self.graph)

    @classmethod
    def of(cls, modules: Sequence[nn.Module]) -> "Piece":
        """Join modules, one after the other, into one. What passes from one piece to the next is not joined."""
        first, last = modules[0], modules[-1]
        graph = fx.Graph()
        count = len(placeholders(first.graph)) if isinstance(first, Piece) else 1
        inputs = passing = [graph.placeholder("input") for _ in range(count)]
        for i, module in enumerate(modules):
            if isinstance(module, Piece):
                passing = copy_nodes(module.graph, graph, passing, str(i))[1]
            else:
                passing = [graph.call_module(str(i), (passing[0],))]
        entry = first.entry if isinstance(first, Piece) else None
        exit = last.exit if isinstance(last, Piece) else None
        nodes = [node for node in graph.nodes if node not in inputs]
        return cls(nn.ModuleList(modules), Segment(nodes, inputs, passing, entry, exit))

    def forward(self, *inputs: Tensor) -> Any:
        made = self.values(*inputs)
        return made[0] if self.exit is None else self.exit.join(made)

    def values(self, *inputs: Any) -> list[Any]:
        """Return all outputs."""
        if self.entry is not None:
            layout = self.entry.take()
            inputs = (*parts(inputs[0], layout.shapes), *layout.aside)
        if self.in_place:
            inputs = tuple(x.clone() if isinstance(x, Tensor) else x for x in inputs)
        return self.compute(self, *inputs)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "compute"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.compute = compiled(self.graph)

    def _get_name(self) -> str:
        return self.label

    def _label(self, node: fx.Node) -> str:
        if node.op == "call_module":
            return self.get_submodule(str(node.target))._get_name()
        name: str = node.target if isinstance(node.target, str) else node.target.__name__
        return name[1:] if node.target in IN_PLACE else name


def compiled(graph: fx.Graph) -> Any:
    """Compile a graph into a Python function of its owner and its inputs."""
    code = graph.python_code("self")
    names = dict(code.globals)
    exec(code.src, names)
    return names["forward"]
