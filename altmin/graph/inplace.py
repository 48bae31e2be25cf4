"""In-place operations: which values they change, and which nodes use these afterwards."""

import operator
import re
from collections.abc import Sequence

import torch
from torch import fx, nn

from altmin.calculus import own_call
from altmin.graph.inline import is_known
from altmin.graph.values import FUNCTIONS, OPERATORS, is_size, numbers
from altmin.layers import View

IN_PLACE = {getattr(operator, f"i{name}"): getattr(operator, f"__{name}__") for name in OPERATORS}
"""operator.iadd and the others, and what they are where they do not work in place."""
MAYBE_VIEWS = re.compile("atleast_|broadcast_tensors|chain_matmul|dropout|einsum|meshgrid|sum_to_size|type_as")
"""Operations of torch that may return their argument, or a view of it, though their schemas do not say so."""
MODULES_OF_VIEWS = (nn.Flatten, nn.Unflatten, nn.Identity, View, nn.modules.dropout._DropoutNd)


def changes_its_input(node: fx.Node, owner: nn.Module) -> bool:
    """Return whether a node may change one of its arguments."""
    if node.op == "call_module":
        return any(getattr(m, "inplace", False) for m in owner.get_submodule(str(node.target)).modules())
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    named = getattr(node.target, "__module__", "") != "_operator"  # operator.and_ changes nothing
    by_name = node.op != "get_attr" and named and name.endswith("_") and not name.endswith("__")
    return by_name or node.target in IN_PLACE or bool(node.kwargs.get("inplace")) or "out" in node.kwargs


def changed(node: fx.Node, owner: nn.Module) -> fx.Node | None:
    """The value that a node changes and returns."""
    if not node.args or not isinstance(node.args[0], fx.Node) or "out" in node.kwargs:
        return None
    if node.op == "call_module" and not getattr(owner.get_submodule(str(node.target)), "inplace", False):
        return None
    return node.args[0] if changes_its_input(node, owner) else None


def settle(graph: fx.Graph, owner: nn.Module) -> None:
    """Let nodes that use a value after it was changed in place take it from the node that changed it: the same tensor,
    in a graph whose edges then show the dependency. A number does not change: n += 1 makes another."""
    nodes = list(graph.nodes)
    place, sizes = {node: i for i, node in enumerate(nodes)}, numbers(nodes)
    for node in nodes:
        base = changed(node, owner)
        if base in sizes:
            node.target = IN_PLACE[node.target]
        elif base is not None:
            base.replace_all_uses_with(node, lambda user, node=node: place[user] > place[node])  # type: ignore[misc]


def overwrites(owner: nn.Module, nodes: Sequence[fx.Node], surely: bool = False) -> bool:
    """Return whether a node changes memory in which another value may lie that is used later: a view, a buffer or a
    parameter. surely: without modules that may do so inside."""
    place, sizes = {node: i for i, node in enumerate(nodes)}, numbers(nodes)
    roots: dict[fx.Node, set[fx.Node]] = {}

    def memory(bases: Sequence[fx.Node]) -> set[fx.Node]:
        return {root for base in bases for root in roots.get(base, ())}

    for node in nodes:
        base = changed(node, owner)
        bases = [base] if base is not None else node.all_input_nodes
        roots[node] = (set() if base is None and _is_new(node, owner) else memory(bases)) or {node}
        if base is None and (not changes_its_input(node, owner) or (surely and node.op == "call_module")):
            continue
        written = memory([value for value in bases if value not in sizes])
        names = [other for other in nodes[: place[node]] if written & roots[other]]
        later = any(place.get(user, len(nodes)) > place[node] for other in names for user in other.users)
        if later or any(root.op == "get_attr" for root in written):
            return True
    return False


def _is_new(node: fx.Node, owner: nn.Module) -> bool:
    """Return whether the value of a node surely has memory of its own."""
    if node.op == "call_module":
        module = owner.get_submodule(str(node.target))
        return is_known(module) and not own_call(module) and not isinstance(module, MODULES_OF_VIEWS)
    if node.op not in FUNCTIONS or is_size(node):
        return True
    if getattr(node.target, "__module__", "") == "_operator":
        return node.target not in (operator.getitem, operator.pos)
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    operation = getattr(torch.ops.aten, name, None)
    if operation is None or MAYBE_VIEWS.match(name):
        return False
    schemas = [getattr(operation, overload)._schema for overload in operation.overloads()]
    return not any(returned.alias_info for schema in schemas if not schema.is_mutable for returned in schema.returns)
