"""Properties of the values of a graph: which depend on the input, which have no derivative, which are tensors."""

import operator
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

Nodes = Collection[fx.Node]

SIZES = {"size", "dim", "numel"}
ATTRIBUTES = ("shape", "ndim", "device", "dtype", "is_cuda", "training")
FUNCTIONS = ("call_function", "call_method")
PURE = {getattr, operator.getitem, *SIZES}


def named(*names: str) -> set[Any]:
    """Methods of tensors by their names, and the functions of torch that have these names."""
    return {*names, *(getattr(torch, name) for name in names if callable(getattr(torch, name, None)))}


OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "matmul")
"""Operators of Python that have an in-place form."""
ORDERS = ("eq", "ne", "lt", "le", "gt", "ge")
_COMPARING = (*ORDERS, "logical_not", "logical_and", "logical_or", "isnan", "isfinite")
WITHOUT_DERIVATIVE = {
    *named(*_COMPARING, "argmax", "argmin", "bool", "long", "int", "sign", "one_hot", "detach"),
    *(getattr(operator, name) for name in (*_COMPARING, "invert") if hasattr(operator, name)),
    torch.nn.functional.one_hot,
}
"""Functions and methods whose value has no derivative with respect to their arguments."""

TUPLES_OF_VIEWS = named("chunk", "split", "tensor_split", "unbind")
"""Functions and methods that compute nothing: they may be called again for every entry of the tuple they return."""


def without_unused(graph: fx.Graph) -> list[fx.Node]:
    """All nodes except the output. Unused sizes and entries are removed from the graph."""
    graph.eliminate_dead_code(lambda node: node.target not in PURE)
    return [node for node in graph.nodes if node.op != "output"]


def passing(nodes: Sequence[fx.Node], inputs: Nodes) -> set[fx.Node]:
    """The nodes that depend on an input, that call a module, or that are unused: these are called once. Others follow
    from parameters, buffers and numbers alone, and can be computed again."""
    dependent = set(inputs)
    for node in nodes:
        if node.op == "call_module" or not node.users or any(source in dependent for source in node.all_input_nodes):
            dependent.add(node)
    return dependent


def is_size(node: fx.Node) -> bool:
    """Return whether a value is an attribute of a tensor: a shape, a type, a device."""
    return node.target in SIZES or (node.target is getattr and node.args[1] in ATTRIBUTES)


def numbers(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """The nodes whose values are sizes, and what Python's operators and mathematical functions make of these."""
    sizes: set[fx.Node] = set()
    for node in nodes:
        computed = getattr(node.target, "__module__", "") in ("_operator", "math") and node.all_input_nodes
        if is_size(node) or (computed and all(source in sizes for source in node.all_input_nodes)):
            sizes.add(node)
    return sizes


def aside(owner: nn.Module, nodes: Sequence[fx.Node], inputs: Nodes, fixed: Nodes = ()) -> set[fx.Node]:
    """The nodes of a graph through which no derivative goes: sizes, comparisons, integers that an embedding reads,
    those that are `fixed`, and what functions make of these alone."""
    begin = {*fixed, *(node for node in nodes if _indexes(owner, node) or is_size(node))}
    begin |= {node for node in nodes if node.op in FUNCTIONS and node.target in WITHOUT_DERIVATIVE}
    return following(owner, nodes, inputs, begin)


def following(owner: nn.Module, nodes: Sequence[fx.Node], inputs: Nodes, begin: Nodes) -> set[fx.Node]:
    """The nodes `begin`, and what functions make of these, buffers and numbers alone. What they make of a parameter has
    a derivative by it."""
    reached, trained = set(begin), set[fx.Node]()
    for node in nodes[0].graph.nodes if nodes else ():
        fixed = node in reached or is_size(node)
        parameter = node.op == "get_attr" and isinstance(operator.attrgetter(str(node.target))(owner), nn.Parameter)
        if parameter or (not fixed and any(source in trained for source in node.all_input_nodes)):
            trained.add(node)
    for node in nodes:
        sources = [n for n in node.all_input_nodes if n in inputs or n.all_input_nodes or n in reached]
        still = all(source in reached or is_size(source) for source in sources)
        if node.op in FUNCTIONS and node not in trained and sources and still:
            reached.add(node)
    return reached


def _indexes(owner: nn.Module, node: fx.Node) -> bool:
    """Return whether an embedding reads a value, which are integers then."""
    called = [owner.get_submodule(str(user.target)) for user in node.users if user.op == "call_module"]
    tables = any(isinstance(module, nn.Embedding | nn.EmbeddingBag) for module in called)
    return tables or any(user.target is nn.functional.embedding for user in node.users)


def with_constants(inner: Nodes, among: Nodes, nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """The nodes `inner` and those outside `among` that they use, in the order of the graph."""
    wanted, left = set(inner), list(inner)
    while left:
        new = [node for node in left.pop().all_input_nodes if node not in among and node not in wanted]
        wanted.update(new)
        left += new
    return [node for node in nodes if node in wanted]


def is_tensor(node: fx.Node) -> bool:
    """Return whether a value may be passed on as a tensor: one that is indexed by a number or a name, or has an
    attribute that tensors lack, may be something else."""
    if is_size(node):
        return False
    entries = [user.args[1] for user in node.users if user.target is operator.getitem and user.args[0] is node]
    attributes: list[Any] = [user.args[1] for user in node.users if user.target is getattr]
    return not any(isinstance(i, int | str) for i in entries) and all(hasattr(Tensor, str(a)) for a in attributes)
