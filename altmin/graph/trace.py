"""A module as a chain of modules: its graph cut at its bottlenecks, and those of its modules likewise.

A *bottleneck* is a node of the graph through whose value everything later depends on the input: no later node uses the
input or a value from before it, but for values without derivative such as masks and sizes. What lies between two
bottlenecks is a module of one input and one output: one of the model's own, one that does what a function does, or a
`Piece`. At a place requested by name where several values pass, they pass as one (see `CutValues`).
"""

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx, nn
from torch.utils import _pytree as pytree

from altmin.calculus import CLOSED_FORMS, Map, Normalisation, own_call
from altmin.calculus.cut_values import CutValues, Number, OutputValues
from altmin.common.errors import unknown
from altmin.graph.functional import module_of
from altmin.graph.inline import ends, inline, is_known, is_plain, join, name_of, placeholders, sole
from altmin.graph.inplace import overwrites, settle
from altmin.graph.piece import Piece, Segment
from altmin.graph.record import INPUT, Untraceable, record
from altmin.graph.recurrent import layers_of_outputs, recurrent_layers
from altmin.graph.values import Nodes, aside, is_tensor, numbers, passing, with_constants, without_unused


@dataclass
class Part:
    """One module of the chain. ends: the names of the model's modules whose output is that of this part."""

    module: nn.Module
    ends: list[str] = field(default_factory=list)


def trace(model: nn.Module, at: Collection[str] = (), inputs: Sequence[str] = ()) -> list[Part]:
    """Modules whose composition is the model; they share its modules, parameters and buffers.

    inputs: the arguments of its forward that a mini-batch has, if there are several. The first part takes them as one
    (`CutValues`); they are handed on, unchanged, to the parts that use them.

    A custom module is opened, its forward replaced by the calls in it, if there are bottlenecks between its
    parameters, if nothing in it branches, if it is called with several inputs, or if `at` names a module inside;
    otherwise it stays whole. So do modules of torch.nn, modules with hooks, and those that cannot be traced. ValueError
    if the model itself cannot be.

    >>> [part.module._get_name() for part in trace(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))]
    ['Linear', 'ReLU', 'Linear']
    """
    if own_call(model):
        raise ValueError(
            f"{type(model).__name__} has hooks, a __call__ of its own or a forward that was put on it, which blocks "
            "would leave out; take them off, or train it as one block: nn.Sequential(model)"
        )
    try:
        parts = list(_opened(model, "", at, inputs))
    except Untraceable as why:
        whole = "; or train it as one block: nn.Sequential(model)" if why.one_block and len(inputs) < 2 else ""
        raise ValueError(f"{type(model).__name__} cannot be cut into blocks: {why}{whole}") from why
    chain: list[Part] = []
    for part in parts:
        if type(part.module) is not nn.Identity or own_call(part.module):
            chain.append(part)
        elif chain:
            chain[-1].ends += part.ends
    return chain


def ends_at(model: nn.Module, parts: Sequence[Part], at: Collection[str]) -> list[int]:
    """Return after how many parts the modules named in `at` end. ValueError for a name that no part ends with."""
    places = {name for part in parts for name in part.ends}
    for name in at:
        if name not in dict(model.named_modules()) or not name:
            raise unknown("module", name, places)
        if name not in places:
            raise ValueError(
                f"the model cannot be cut after {name!r}, which is not called once, lies inside a module that stays "
                "whole, does not return one tensor, or is bypassed by something that is no tensor; "
                f"{unknown('place to cut', name, places)}"
            )
    return [i + 1 for i, part in enumerate(parts) if any(name in at for name in part.ends)]


def _opened(module: nn.Module, name: str, at: Collection[str], inputs: Sequence[str] = ()) -> Iterator[Part]:
    """The parts of a module's forward. `Untraceable` if that cannot be traced. inputs: as in `trace`."""
    if len(inputs) > 1:
        graph = record(module, (), dict.fromkeys(inputs, INPUT), structured=True)
        yield from _of_graph(graph, module, name, at, inputs)
    elif is_known(module):
        yield Part(module)
    elif (in_time := layers_of_outputs(module)) is not None:
        yield from map(Part, in_time)
    elif is_plain(module):
        for child, layer in zip(module._modules, module, strict=True):
            yield from _parts(layer, join(name, child), at)
    else:
        yield from _of_graph(record(module, structured=not name), module, name, at)


def _of_graph(
    graph: fx.Graph, module: nn.Module, name: str, at: Collection[str], inputs: Sequence[str] = ()
) -> Iterator[Part]:
    """The parts of a module by the graph of its forward."""
    inline(graph, module, lambda node: len(node.all_input_nodes) > 1 or _inside(join(name, str(node.target)), at), name)
    settle(graph, module)
    asked = [node for node in graph.nodes if set(ends(node)) & set(at)]
    for segment in segments(graph, module, asked, inputs):
        nodes, source = segment.nodes, segment.inputs[0]
        in_time = recurrent_layers(module, nodes, source) if segment.plain else None
        if in_time is not None:
            chain = [Part(layer) for layer in in_time]
        elif segment.plain and len(nodes) == 1 and nodes[0].op == "call_module" and sole(nodes[0]) is source:
            target = str(nodes[0].target)
            chain = _parts(module.get_submodule(target), join(name, target), at)
        else:
            chain = [Part((module_of(nodes, source) if segment.plain else None) or Piece(module, segment))]
        if chain:  # its output may also be that of modules that were replaced by what they call
            chain[-1].ends += [end for end in ends(segment.made[0]) if end not in chain[-1].ends]
        yield from chain


def _inside(name: str, at: Collection[str]) -> bool:
    """Return whether a place to cut lies inside a module of this name."""
    return any(place.startswith(f"{name}.") for place in at)


def _parts(module: nn.Module, name: str, at: Collection[str]) -> list[Part]:
    """The parts of a module that the model calls by this name, or the module as a whole."""
    whole, inside = [Part(module, [name])], _inside(name, at)
    if own_call(module) or not (inside or is_plain(module) or any(True for _ in module.parameters())):
        return whole
    try:
        parts = list(_opened(module, name, at))
    except Untraceable:
        return whole
    branches = any(isinstance(part.module, Piece) for part in parts)
    if branches and not inside and sum(map(_has_weights, parts)) < 2:
        return whole
    if parts:
        parts[-1].ends.append(name)
    return parts


def _has_weights(part: Part) -> bool:
    norm = issubclass(CLOSED_FORMS.get(type(part.module), Map), Normalisation)
    return not norm and any(True for _ in part.module.parameters())


def segments(graph: fx.Graph, owner: nn.Module, at: Nodes = (), inputs: Sequence[str] = ()) -> list[Segment]:
    """The segments between bottlenecks, or between nodes of `at`. inputs: the names of the graph's, if there are
    several; none of them moves, so that they pass cuts beside the code.

    Values that depend on parameters, buffers and numbers alone do not pass: each segment computes them again.
    Segments that need a `Piece` and have no parameters are joined to the next that needs one, unless `at` says so.
    """
    nodes = without_unused(graph)
    sources = placeholders(graph)
    outputs, last = _outputs(graph.output_node().args[0])
    flow = passing(nodes, sources)
    if overwrites(owner, nodes, surely=True):
        reason = "its forward changes a tensor in place: a buffer, or one of which it then uses a view from before"
        remedy = "write that out of place, such as x = x + y instead of x += y, or put it into a module of its own"
        raise Untraceable(reason, remedy)
    if not outputs or any(node not in flow for node in outputs):
        raise Untraceable("its output does not depend on its input", "let it", one_block=False)
    order = [node for node in nodes if node in flow]
    result: list[Segment] = []
    still = aside(owner, order, sources, sources if len(sources) > 1 else ())
    start, entry = len(sources), CutValues(1, "at the input", names=inputs) if len(sources) > 1 else None
    for end, made, exit in [*_cuts(order, outputs, still, at), (len(order), outputs, last)]:
        segment = Segment(order[start:end], sources, made, entry, exit)
        if result and result[-1].made[0] not in at and _weightless(result[-1]) and not _is_a_module(segment):
            before = result.pop()
            segment = Segment([*before.nodes, *segment.nodes], before.inputs, made, before.entry, exit)
        result.append(segment)
        start, sources, entry = end, made, exit
    return [segment._replace(nodes=with_constants(segment.nodes, flow, nodes)) for segment in result if segment.nodes]


def _outputs(result: Any) -> tuple[list[fx.Node], OutputValues | None]:
    """Return the tensors that a graph returns, and how they are one, unless it returns one tensor."""
    if isinstance(result, fx.Node):
        return [result], None
    nodes, order = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, fx.Node)], itertools.count()
    return nodes, OutputValues(len(nodes), pytree.tree_map_only(fx.Node, lambda _: Number(next(order)), result))


def _cuts(
    order: Sequence[fx.Node], outputs: Nodes, still: Nodes, at: Nodes
) -> Iterator[tuple[int, list[fx.Node], CutValues | None]]:
    """Yield after how many nodes to cut, and the values that pass there, as one if they are several. still: the nodes
    whose values have no derivative. No cut but those of `at` lies between a size and its use."""
    sizes = numbers(order)
    place = {node: i for i, node in enumerate(order)}
    last_use = {node: max((place.get(user, len(order)) for user in node.users), default=0) for node in order}
    for i, node in enumerate(order[1:], 1):
        live = [value for value in order[:i] if last_use[value] > i]
        moving = [node, *(value for value in live if value not in still)]
        asked = node in at or (len(moving) == 1 and not any(value in sizes for value in live))
        if asked and node.users and node not in outputs and node not in still and all(map(is_tensor, moving)):
            beside = sorted((value for value in live if value in still), key=sizes.__contains__)
            made, counts = [*moving, *beside], sum(value in sizes for value in beside)
            cut = CutValues(len(moving), f"after {name_of(node)!r}", counts, [name_of(value) for value in made])
            yield i + 1, made, cut if len(made) > 1 else None


def _weightless(segment: Segment) -> bool:
    """Return whether a segment needs a `Piece` and surely has no parameters."""
    used = [value for node in segment.nodes for value in (node, *node.all_input_nodes)]
    return not _is_a_module(segment) and not any(node.op in ("call_module", "get_attr") for node in used)


def _is_a_module(segment: Segment) -> bool:
    nodes = segment.nodes
    called = len(nodes) == 1 and nodes[0].op == "call_module"
    return segment.plain and bool(nodes) and (called or module_of(nodes, segment.inputs[0]) is not None)
