"""A module as a chain of modules: its graph cut at its bottlenecks, and those of its modules likewise.

A *bottleneck* is a node of the graph through whose value everything later depends on the input: no later node uses the
input or a value from before it. What lies between two bottlenecks is a module of one input and one output: one of the
model's own, one that does what a function does, or a `Piece`.
"""

import operator
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, fx, nn

from altmin.calculus import CLOSED_FORMS, Normalisation, own_call
from altmin.errors import unknown
from altmin.graph.functional import module_of
from altmin.graph.piece import Piece
from altmin.graph.record import Untraceable, demand_one_input, record

PURE = {getattr, operator.getitem, "size", "dim"}


@dataclass
class Part:
    """One module of the chain. ends: the names of the model's modules whose output is that of this part."""

    module: nn.Module
    ends: list[str] = field(default_factory=list)


def trace(model: nn.Module, at: Collection[str] = ()) -> list[Part]:
    """Modules whose composition is the model; they share its modules, parameters and buffers.

    A module of one's own is opened, its forward replaced by what it calls, if there are bottlenecks between its
    parameters, if nothing in it branches, or if `at` names a module inside; otherwise it stays whole. So do modules of
    torch.nn, modules with hooks, modules that are called with more than one input, and those that cannot be traced.
    ValueError if the model itself cannot be.

    >>> [part.module._get_name() for part in trace(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))]
    ['Linear', 'ReLU', 'Linear']
    """
    if type(model).forward is nn.Module.forward:
        raise ValueError(f"{type(model).__name__} has no forward of its own; call its modules in that of a model")
    if own_call(model):
        raise ValueError(
            f"{type(model).__name__} has hooks or a forward that was put on it, which its blocks would leave out; take "
            "them off, or train it as one block: nn.Sequential(model)"
        )
    try:
        demand_one_input(model)
        parts = list(_opened(model, "", at))
    except Untraceable as why:
        whole = "; or train it as one block: nn.Sequential(model)" if why.one_block else ""
        raise ValueError(f"{type(model).__name__} cannot be cut into blocks: {why}{whole}") from why
    return _without_identities(parts)


def _without_identities(parts: Sequence[Part]) -> list[Part]:
    kept: list[Part] = []
    for part in parts:
        if type(part.module) is not nn.Identity or own_call(part.module):
            kept.append(part)
        elif kept:
            kept[-1].ends += part.ends
    return kept


def ends_at(model: nn.Module, parts: Sequence[Part], at: Collection[str]) -> list[int]:
    """After how many parts the modules named in `at` end. ValueError for a name that no part ends with."""
    if isinstance(at, str):
        raise ValueError(f"at is a list of names of modules, given {at!r}; write [{at!r}]")
    places = {name for part in parts for name in part.ends}
    for name in at:
        if name not in dict(model.named_modules()) or not name:
            raise unknown("module", name, places)
        if name not in places:
            raise ValueError(
                f"the model cannot be cut after {name!r}, which other values bypass, or which is not called with one "
                f"input, once; {unknown('place to cut', name, places)}"
            )
    return [i + 1 for i, part in enumerate(parts) if any(name in at for name in part.ends)]


def _opened(module: nn.Module, name: str, at: Collection[str]) -> Iterator[Part]:
    """The parts of a module's forward. `Untraceable` if that cannot be traced."""
    if _is_known(module):
        yield Part(module)
        return
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        for child, each in module._modules.items():
            assert each is not None
            yield from _parts(each, _join(name, child), at)
        return
    for nodes, given, output in segments(record(module)):
        inner = _called(module, nodes, given)
        if inner is not None:
            yield from _parts(inner, _join(name, str(nodes[0].target)), at)
        else:
            yield Part(module_of(nodes, given) or Piece(module, nodes, given, output), _names(name, nodes, output))


def _parts(module: nn.Module, name: str, at: Collection[str]) -> list[Part]:
    """The parts of a module that the model calls by this name, or the module as a whole."""
    whole = [Part(module, [name])]
    if own_call(module):
        return whole
    inside = any(each.startswith(f"{name}.") for each in at)
    plain = isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward
    if not (inside or plain or any(True for _ in module.parameters())):
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


def _is_known(module: nn.Module) -> bool:
    """Whether a module is torch's, or has a closed form: it is never opened."""
    torch_own = type(module).__module__.startswith("torch.") and not isinstance(module, nn.Sequential | fx.GraphModule)
    return torch_own or type(module) in CLOSED_FORMS


def _has_weights(part: Part) -> bool:
    kind = CLOSED_FORMS.get(type(part.module))
    norm = kind is not None and issubclass(kind, Normalisation)
    return not norm and any(True for _ in part.module.parameters())


def segments(graph: fx.Graph) -> list[tuple[list[fx.Node], fx.Node, fx.Node]]:
    """What lies between two bottlenecks: its nodes, the node before them, and the one whose value is handed on.

    What follows from parameters, buffers and numbers alone is no value that passes: each segment computes it anew.
    Segments that need a `Piece` and have no parameters are joined to the next that needs one.
    """
    nodes = _without_unused(graph)
    given = next(node for node in nodes if node.op == "placeholder")
    output: Any = graph.output_node().args[0]
    passing = _passing(nodes, given)
    if output not in passing:
        raise Untraceable("its output does not depend on its input", "let it", one_block=False)
    order = [node for node in nodes if node in passing]
    place = {node: i for i, node in enumerate(order)}
    last_use = {node: max((place.get(user, len(order)) for user in node.users), default=0) for node in order}
    found, start, longest, first = [], given, last_use[given], 1
    for i, node in enumerate(order[1:], 1):
        at_the_end = node is output and i == len(order) - 1
        if at_the_end or (longest <= i and node.users and _is_tensor(node) and node is not output):
            found.append((order[first : i + 1], start, node))
            start, first = node, i + 1
        longest = max(longest, last_use[node])
    if first < len(order):  # the output has other nodes behind it, or is used by them
        found.append((order[first:], start, output))
    return [(_with_constants(inner, passing, nodes), a, b) for inner, a, b in _joined(found)]


def _joined(found: list[Any]) -> list[Any]:
    joined: list[Any] = []
    for inner, given, output in found:
        if joined and _weightless(joined[-1]) and not _is_a_module(inner, given):
            before = joined.pop()
            inner, given = [*before[0], *inner], before[1]
        joined.append((inner, given, output))
    return joined


def _weightless(segment: Any) -> bool:
    """Whether a segment needs a `Piece` and surely has no parameters."""
    inner, given, _ = segment
    used = [node for each in inner for node in (each, *each.all_input_nodes)]
    return not _is_a_module(inner, given) and not any(node.op in ("call_module", "get_attr") for node in used)


def _is_a_module(inner: Sequence[fx.Node], given: fx.Node) -> bool:
    return (len(inner) == 1 and inner[0].op == "call_module") or module_of(inner, given) is not None


def _without_unused(graph: fx.Graph) -> list[fx.Node]:
    """All nodes but the output, and but sizes and entries that nobody uses."""
    nodes = [node for node in graph.nodes if node.op != "output"]
    for node in reversed(nodes):
        if not node.users and node.target in PURE:
            graph.erase_node(node)
    return [node for node in graph.nodes if node.op != "output"]


def _passing(nodes: Sequence[fx.Node], given: fx.Node) -> set[fx.Node]:
    """The nodes that depend on the input, that call a module, or that nobody uses: these are called once."""
    passing = {given}
    for node in nodes:
        if node.op == "call_module" or not node.users or any(each in passing for each in node.all_input_nodes):
            passing.add(node)
    return passing


def _with_constants(inner: Sequence[fx.Node], passing: set[fx.Node], nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """The nodes of a segment and the constants that they use, in the order of the graph."""
    wanted, left = set(inner), list(inner)
    while left:
        new = [node for node in left.pop().all_input_nodes if node not in passing and node not in wanted]
        wanted.update(new)
        left += new
    return [node for node in nodes if node in wanted]


def _is_tensor(node: fx.Node) -> bool:
    """Whether a value may be handed on: one that is indexed by a number or a name, or asked for what tensors do not
    have, may be something else."""
    if node.target in ("size", "dim") or (
        node.target is getattr and node.args[1] in ("shape", "ndim", "device", "dtype")
    ):
        return False
    entries = [user.args[1] for user in node.users if user.target is operator.getitem and user.args[0] is node]
    attributes = [user.args[1] for user in node.users if user.target is getattr]
    return not any(isinstance(i, int | str) for i in entries) and all(hasattr(Tensor, str(a)) for a in attributes)


def _called(module: nn.Module, nodes: Sequence[fx.Node], given: fx.Node) -> nn.Module | None:
    """The module that a segment calls with its input and nothing else, if that is all it does."""
    if len(nodes) == 1 and nodes[0].op == "call_module" and nodes[0].args == (given,) and not nodes[0].kwargs:
        return module.get_submodule(str(nodes[0].target))
    return None


def _names(name: str, nodes: Sequence[fx.Node], output: fx.Node) -> list[str]:
    return [_join(name, str(output.target))] if output.op == "call_module" else []


def _join(name: str, child: str) -> str:
    return f"{name}.{child}" if name else child
