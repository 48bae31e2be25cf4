"""`Piece`: a part of a module's graph as a module."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from altmin.calculus.cut_values import CutValues, parts, shortened
from altmin.graph.inplace import IN_PLACE, changes_its_input

CHECKS = (operator.eq, operator.ne, operator.le, operator.lt, operator.ge, operator.gt, torch._assert)
HIDDEN = {getattr, operator.getitem, "size", "dim", *CHECKS}
"""Nodes that a label leaves out: sizes, entries and assertions."""


class Place(NamedTuple):
    """Where a value is found: the inputs come first, then the values of the steps."""

    number: int


class Step(NamedTuple):
    """One node: `target` is a function, or the name of a method, or of what the piece holds."""

    op: str
    target: Any
    args: Any
    kwargs: Any


class Piece(nn.Module):
    """The nodes of a graph between some of its values, as a module.

    It holds the modules, parameters and buffers that its nodes use: those of `owner` themselves, not copies. It calls
    the modules, so their mode and their hooks count; its own mode does not.

    nodes: in the order of the graph. given: the nodes whose values are its inputs. made: those whose values it gives.
    entry, exit: how several of these are one tensor; without an exit there is one value.
    """

    def __init__(
        self,
        owner: nn.Module,
        nodes: Sequence[fx.Node],
        given: Sequence[fx.Node],
        made: Sequence[fx.Node],
        entry: CutValues | None = None,
        exit: CutValues | None = None,
    ):
        super().__init__()
        self.training = False
        self.given, self.entry, self.exit = len(given), entry, exit
        places = {node: Place(i) for i, node in enumerate([*given, *nodes])}
        names: dict[str, str] = {}
        held: dict[int, str] = {}
        for node in nodes:
            if node.op in ("call_module", "get_attr") and node.target not in names:
                what = operator.attrgetter(str(node.target))(owner)
                if id(what) not in held:  # a module with two names is held once
                    held[id(what)] = self._hold(str(node.target), what)
                names[str(node.target)] = held[id(what)]
        self.steps = [
            Step(
                node.op,
                names.get(str(node.target), node.target) if node.op in ("call_module", "get_attr") else node.target,
                mapped(node.args, fx.Node, places.__getitem__),
                mapped(dict(node.kwargs), fx.Node, places.__getitem__),
            )
            for node in nodes
        ]
        self.made = tuple(places[node].number for node in made)
        self.in_place = any(changes_its_input(step.op, step.target, step.kwargs, self) for step in self.steps)
        """Whether it works on a copy of its input, which might be changed otherwise."""
        shown = [step for step in self.steps if step.op != "get_attr" and step.target not in HIDDEN] or self.steps
        self.label = f"({shortened([self._label(step) for step in shown])})"

    @classmethod
    def of(cls, modules: Sequence[nn.Module]) -> "Piece":
        """Modules one after the other as one. What passes from one piece to the next is not joined."""
        graph, owner, first, last = fx.Graph(), nn.ModuleList(modules), modules[0], modules[-1]
        given = [graph.placeholder("input") for _ in range(first.given if isinstance(first, Piece) else 1)]
        passing = given
        for i, module in enumerate(modules):
            if isinstance(module, Piece):
                values = list(passing)
                module.write(graph, values, f"{i}.")
                passing = [values[place] for place in module.made]
            else:
                passing = [graph.call_module(str(i), (passing[0],))]
        entry = first.entry if isinstance(first, Piece) else None
        exit = last.exit if isinstance(last, Piece) else None
        return cls(owner, [node for node in graph.nodes if node not in set(given)], given, passing, entry, exit)

    def forward(self, *inputs: Tensor) -> Any:
        made = self.values(*inputs)
        return made[0] if self.exit is None else self.exit.join(made)

    def values(self, *inputs: Tensor) -> list[Any]:
        """All values that it gives."""
        values: list[Any] = list(inputs)
        if self.entry is not None:
            layout = self.entry.take()
            values = [*parts(inputs[0], layout.shapes), *layout.aside]
        if self.in_place:
            values = [x.clone() if isinstance(x, Tensor) else x for x in values]

        def value(place: Place) -> Any:
            return values[place.number]

        for step in self.steps:
            args, kwargs = mapped(step.args, Place, value), mapped(step.kwargs, Place, value)
            if step.op == "call_function":
                values.append(step.target(*args, **kwargs))
            elif step.op == "call_method":
                values.append(getattr(args[0], step.target)(*args[1:], **kwargs))
            elif step.op == "call_module":
                values.append(self._modules[step.target](*args, **kwargs))  # type: ignore[misc]
            else:
                values.append(getattr(self, step.target))
        return [values[i] for i in self.made]

    def graph(self) -> tuple[fx.Graph, list[fx.Node], list[fx.Node]]:
        """What it computes as a graph whose owner it is, and the nodes of its inputs and of what it gives."""
        graph = fx.Graph()
        nodes = [graph.placeholder("input") for _ in range(self.given)]
        self.write(graph, nodes)
        return graph, nodes[: self.given], [nodes[i] for i in self.made]

    def write(self, graph: fx.Graph, values: list[fx.Node], prefix: str = "") -> None:
        """Adds its steps to a graph, and their values to those of its inputs. prefix: of its names in the owner."""
        for step in self.steps:
            args = [mapped(each, Place, lambda place: values[place.number]) for each in (step.args, step.kwargs)]
            target = f"{prefix}{step.target}" if step.op in ("call_module", "get_attr") else step.target
            values.append(graph.create_node(step.op, target, *args))

    def _get_name(self) -> str:
        return self.label

    def _hold(self, target: str, what: Any) -> str:
        """Registers what the owner has under `target`; returns its name here."""
        name = target.replace(".", "_")
        while hasattr(self, name):
            name += "_"
        if isinstance(what, Tensor) and not isinstance(what, nn.Parameter):
            self.register_buffer(name, what, persistent=False)
        else:
            setattr(self, name, what)
        return name

    def _label(self, step: Step) -> str:
        if step.op == "call_module":
            return self._modules[step.target]._get_name()  # type: ignore[union-attr]
        name: str = step.target if isinstance(step.target, str) else step.target.__name__
        return name[1:] if step.target in IN_PLACE else name


def mapped(a: Any, kind: type, f: Callable[[Any], Any]) -> Any:
    """Arguments of a node with f of everything in them that is of a kind."""
    if isinstance(a, kind):
        return f(a)
    if isinstance(a, tuple):
        return tuple([mapped(each, kind, f) for each in a])
    if isinstance(a, list):
        return [mapped(each, kind, f) for each in a]
    if isinstance(a, Mapping):
        return {name: mapped(each, kind, f) for name, each in a.items()}
    if isinstance(a, slice):
        return slice(mapped(a.start, kind, f), mapped(a.stop, kind, f), mapped(a.step, kind, f))
    return a
