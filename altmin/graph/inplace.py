"""In-place operations: which values they change, and which nodes use these afterwards."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from torch import fx, nn

from altmin.graph.values import is_size, named, numbers
from altmin.layers import View

IN_PLACE = {getattr(operator, name) for name in dir(operator) if name[0] == "i" and hasattr(operator, f"__{name}__")}
VIEWS = {getattr, operator.getitem} | named(
    *("chunk", "contiguous", "detach", "diagonal", "expand", "expand_as", "flatten", "movedim", "narrow", "permute"),
    *("reshape", "select", "split", "squeeze", "swapaxes", "t", "tensor_split", "to", "transpose", "type_as", "unbind"),
    *("unflatten", "unsqueeze", "view", "view_as"),
)
"""Functions and methods whose value may share memory with their arguments."""
MODULES_OF_VIEWS = (nn.Flatten, nn.Unflatten, nn.Identity, View, nn.modules.dropout._DropoutNd)


def changes_its_input(op: str, target: Any, kwargs: Mapping[str, Any], owner: nn.Module) -> bool:
    """Whether a node may change one of its arguments."""
    if op == "call_module":
        return any(getattr(m, "inplace", False) for m in owner.get_submodule(str(target)).modules())
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    named = getattr(target, "__module__", "") != "_operator"  # operator.and_ changes nothing
    by_name = op != "get_attr" and named and name.endswith("_") and not name.endswith("__")
    return by_name or target in IN_PLACE or bool(kwargs.get("inplace")) or "out" in kwargs


def changed(node: fx.Node, owner: nn.Module) -> fx.Node | None:
    """The value that a node changes and returns."""
    if not node.args or not isinstance(node.args[0], fx.Node) or "out" in node.kwargs:
        return None
    if node.op == "call_module" and not getattr(owner.get_submodule(str(node.target)), "inplace", False):
        return None
    return node.args[0] if changes_its_input(node.op, node.target, node.kwargs, owner) else None


def settle(graph: fx.Graph, owner: nn.Module) -> None:
    """Nodes that use a value after it was changed in place take it from the node that changed it: the same tensor, in
    a graph whose edges then show the dependency."""
    nodes = list(graph.nodes)
    place, sizes = {node: i for i, node in enumerate(nodes)}, numbers(nodes)
    for node in nodes:
        base = changed(node, owner)
        if base is not None and base not in sizes:
            for user in [each for each in base.users if place[each] > place[node]]:
                user.replace_input_with(base, node)


def overwrites(owner: nn.Module, nodes: Sequence[fx.Node], surely: bool = False) -> bool:
    """Whether a node changes memory in which another value lies that is used later, such as a view. surely: without
    modules that may do so inside."""
    place, sizes = {node: i for i, node in enumerate(nodes)}, numbers(nodes)
    root: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        base = _base(node, owner)
        root[node] = root.get(base, node)
    for node in nodes:
        base = changed(node, owner)
        may = base is None and not surely and changes_its_input(node.op, node.target, node.kwargs, owner)
        bases = node.all_input_nodes if may else [base]
        roots = {root[each] for each in bases if each is not None and each in root and each not in sizes}
        for other in nodes[: place[node]]:
            later = any(place.get(user, len(nodes)) > place[node] for user in other.users)
            if later and root[other] in roots:
                return True
    return False


def _base(node: fx.Node, owner: nn.Module) -> Any:
    """The value with which that of a node may share memory."""
    if node.op == "call_module":
        view = isinstance(owner.get_submodule(str(node.target)), MODULES_OF_VIEWS)
    else:
        view = node.target in VIEWS and not is_size(node)
    return node.all_input_nodes[0] if view and node.all_input_nodes else changed(node, owner)
