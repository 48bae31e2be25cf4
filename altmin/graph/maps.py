"""The map of a module: closed forms for what its graph calls, where there are any, and autograd for the other parts."""

import copy
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx, nn

from altmin import calculus
from altmin.calculus import AnyModule, Map, own_call
from altmin.calculus.cut_values import OutputValues
from altmin.calculus.graph import Ends, Graph, Node
from altmin.calculus.multi_input import Aside, Concatenation, Product, Sum
from altmin.graph.functional import module_of
from altmin.graph.inline import inline, is_known, placeholders, sole
from altmin.graph.inplace import overwrites, settle
from altmin.graph.piece import Piece
from altmin.graph.record import Untraceable, record
from altmin.graph.regions import regions
from altmin.graph.values import TUPLES_OF_VIEWS, Nodes, aside, following, is_size, passing, without_unused

SUMS = {operator.add, operator.iadd, torch.add, "add", "add_"}
PRODUCTS = {operator.mul, operator.imul, torch.mul, "mul", "mul_"}
CONCATENATIONS = {torch.cat, torch.concat, torch.concatenate}


def map_of(module: nn.Module) -> Map:
    """The map of one module: a closed form, or the graph of what it calls, or the module as a whole through autograd.

    ValueError for a piece of a model between places where it cannot be cut.

    >>> class Skip(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.inner = nn.Linear(3, 3)
    ...
    ...     def forward(self, x):
    ...         return x + torch.tanh(self.inner(x)).cumsum(1)
    >>> [type(node.map).__name__ for node in map_of(Skip()).nodes]
    ['Linear', 'Tanh', 'AnyModule', 'Sum']
    """
    whole = calculus.map_of(module)
    if not whole.uses_autograd or own_call(module) or is_known(module):
        return whole
    try:
        graph = _graph(module)
    except Untraceable:
        graph = None
    cut = isinstance(module, Piece) and (module.exit or module.entry)
    if graph is None and cut:
        raise ValueError(
            f"the model cannot be cut {cut.where}: what passes there is not computed by modules and functions that "
            "stand on one side of it, or changed in place; "
            + ("let the model return one tensor" if isinstance(cut, OutputValues) else "cut elsewhere")
        )
    return graph or whole


def _graph(module: nn.Module) -> Graph | None:
    """Return the graph of a module's maps; None if all of it would go through autograd, if the order of its calls
    matters, or if it calls a module and does not use its output."""
    graph = copy.deepcopy(module.graph) if isinstance(module, Piece) else record(module)
    entry, exit = (module.entry, module.exit) if isinstance(module, Piece) else (None, None)
    inline(graph, module)
    settle(graph, module)
    result: Any = graph.output_node().args[0]
    inputs, made = placeholders(graph), list(result) if isinstance(result, list) else [result]
    nodes = without_unused(graph)
    unused = [node for node in nodes if node.op == "call_module" and not node.users and node not in made]
    if any(_has_an_effect(module.get_submodule(str(node.target))) for node in unused) or overwrites(module, nodes):
        return None
    nodes = [node for node in nodes if node not in unused]
    without = aside(module, nodes, inputs) | set(inputs[entry.moving :] if entry else ())
    counts = inputs[len(inputs) - entry.sizes :] if entry else []
    sizes = following(module, nodes, inputs, {*counts, *filter(is_size, nodes)})
    still = set(made[exit.moving :] if exit else ()) - set(inputs)
    called_once = passing(nodes, inputs) - set(inputs)
    groups = None
    for anew in (set(), {node for node in nodes if node.target in TUPLES_OF_VIEWS}):  # only where that is needed
        recomputed = (sizes | anew) - set(made)
        flow = [node for node in nodes if node in called_once and node not in recomputed]
        maps = {node: known for node in flow if (known := _closed_form(module, node, {*flow, *inputs}, without))}
        groups = regions(nodes, flow, {*maps, *still}, inputs, made)
        if groups is not None:
            break
    if groups is None or not all(region.inputs for region in groups):
        return None
    closed = {region.made[0] for region in groups if region.made[0] in maps and len(region.nodes) == 1}
    if not (entry or exit or closed):
        return None
    place = {node: i for i, node in enumerate([*inputs, *(region.made[0] for region in groups)])}
    named = {id(p): name for name, p in module.named_parameters()}
    assembled = []
    for region in groups:
        output, args = region.made[0], region.inputs
        if output in closed:
            m, args = maps[output]
        else:
            piece = Piece(module, region)
            m = Aside(piece) if output in still else AnyModule(piece, several=True)
        names = tuple(named[id(m.module.get_parameter(name))] for name in m.names)
        assembled.append(Node(m, tuple(place[arg] for arg in args), names))
    return Graph(module, assembled, Ends(len(inputs), tuple(place[node] for node in made), entry, exit))


def _has_an_effect(module: nn.Module) -> bool:
    """Return whether a module's call may do more than return its output: it has buffers that could change, or hooks."""
    return any(True for _ in module.buffers()) or any(map(own_call, module.modules()))


def _closed_form(module: nn.Module, node: fx.Node, values: Nodes, still: Nodes) -> tuple[Map, Sequence[Any]] | None:
    """The closed form of one node and its inputs, which are among the values; None if it has none. still: values
    without derivative, which only a module takes: they may be no tensors."""
    args, layer, sources = node.args, None, [value for value in node.all_input_nodes if value in values]
    if node.op == "call_module":
        layer = module.get_submodule(str(node.target)) if sole(node) in values else None
    elif any(value in still for value in node.all_input_nodes):
        return None
    elif node.target in CONCATENATIONS:
        tensors, dim = args[0], args[1] if len(args) > 1 else node.kwargs.get("dim", 0)
        whole = isinstance(tensors, list | tuple) and len(sources) == len(node.all_input_nodes)
        return (Concatenation(dim), tensors) if whole and type(dim) is int else None  # type: ignore[return-value]
    elif node.target in SUMS | PRODUCTS and _takes_two(node, values):
        return Sum() if node.target in SUMS else Product(), args
    if layer is None and len(sources) == 1:
        layer = module_of([node], sources[0])
    closed = None if layer is None else calculus.map_of(layer)
    return None if closed is None or closed.uses_autograd else (closed, sources)


def _takes_two(node: fx.Node, values: Nodes) -> bool:
    known = all(isinstance(arg, fx.Node) and arg in values for arg in node.args)
    return known and len(node.args) == 2 and not node.kwargs
