"""A graph in which calls of modules are replaced by what these call."""

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

from torch import fx, nn

from altmin.calculus import CLOSED_FORMS, own_call
from altmin.graph.record import Untraceable, record

ENDS = "ends"
"""Key of a node's `meta` for the names, in the model, of the modules whose output is its value."""


def join(name: str, child: str) -> str:
    """The name of a module's child, in the words of `named_modules`."""
    return f"{name}.{child}" if name else child


def ends(node: fx.Node) -> list[str]:
    """The names of the modules whose output a value is."""
    names: list[str] = node.meta.setdefault(ENDS, [])
    return names


def name_of(node: fx.Node) -> str:
    """The name of the module whose output a value is, or "input", or the name of the function that computes it."""
    function = node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", node.name))
    return "input" if node.op == "placeholder" else next(iter(ends(node)), function)


def is_known(module: nn.Module) -> bool:
    """Return whether a module is torch's, or has a closed form: it is never opened."""
    torch_own = type(module).__module__.startswith("torch.") and not isinstance(module, nn.Sequential | fx.GraphModule)
    return torch_own or type(module) in CLOSED_FORMS


def is_plain(module: nn.Module) -> TypeGuard[nn.Sequential]:
    """Return whether a module does nothing but feed each of its modules into the next."""
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward and not own_call(module)


def inline(
    graph: fx.Graph, owner: nn.Module, wanted: Callable[[fx.Node], bool] = lambda node: True, name: str = ""
) -> None:
    """Replace, in place, every call of a module that is `wanted` and can be opened, and so on inside it.

    Modules that torch has, that have a closed form or hooks, that cannot be traced or that return something else than
    one tensor stay calls. owner: whose modules the graph calls, by their names. name: the owner's in the model.
    """
    left = [node for node in reversed(graph.nodes) if node.op == "call_module"]
    while left:
        node = left.pop()
        module = owner.get_submodule(str(node.target))
        ends(node).append(join(name, str(node.target)))
        if type(module) is nn.Identity and not own_call(module) and sole(node) is not None:
            _replace(graph, node, sole(node))
        elif wanted(node) and not is_known(module) and not own_call(module):
            left += [new for new in reversed(_opened(graph, node, module)) if new.op == "call_module"]


def _opened(graph: fx.Graph, node: fx.Node, module: nn.Module) -> list[fx.Node]:
    """Replace one call; return the nodes that replace it, none if it stays."""
    inputs = [arg for arg in (*node.args, *node.kwargs.values()) if isinstance(arg, fx.Node)]
    if set(inputs) != set(node.all_input_nodes):  # one is inside a tuple or a list
        return []
    try:
        inner = record(module, node.args, node.kwargs)
    except Untraceable:
        return []
    with graph.inserting_before(node):
        new, made = copy_nodes(inner, graph, inputs, str(node.target))
    _replace(graph, node, made)
    return new


def placeholders(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def copy_nodes(inner: fx.Graph, graph: fx.Graph, inputs: Sequence[fx.Node], name: str) -> tuple[list[fx.Node], Any]:
    """Copy a graph into another, whose owner has the inner one's owner as a module of this name. Return the new nodes
    and the values of the inner outputs. inputs: the values of the inner inputs."""
    values = dict(zip(placeholders(inner), inputs, strict=True))
    made = graph.graph_copy(inner, values)
    new = [values[node] for node in inner.nodes if node.op not in ("placeholder", "output")]
    for node in new:
        if node.op in ("call_module", "get_attr"):
            node.target = join(name, str(node.target))
    return new, made


def sole(node: fx.Node) -> fx.Node | None:
    """The one argument of a call."""
    alone = len(node.args) == 1 and isinstance(node.args[0], fx.Node) and not node.kwargs
    return node.args[0] if alone else None  # type: ignore[return-value]


def _replace(graph: fx.Graph, node: fx.Node, by: Any) -> None:
    ends(by).extend(ends(node))
    node.replace_all_uses_with(by)
    graph.erase_node(node)
