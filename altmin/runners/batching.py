"""Products of one shape as one batched product: a pass over the graph of a compiled step.

The product of a small layer leaves most of a GPU idle. Jvps and gradients of different blocks do not depend on each
other, so those of equal layers can be computed together. Inputs are stacked for it, which kernels that make them do as
they write. A step of 20 layers of 512 units takes 0.83 ms instead of 1.08 on an H200; torch's own pass
(batch_linear_post_grad) searches for minutes there.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch._inductor.pattern_matcher import stable_topological_sort

FEWEST = 4
"""Products that are worth a batch."""
LARGEST = 1 << 20
"""Entries of an operand up to which a product leaves much of a GPU idle."""

Key = tuple[Any, ...]
aten = torch.ops.aten


class BatchedProducts(CustomGraphPass):
    """Replace matrix products of one shape that do not depend on each other by batched ones."""

    def uuid(self) -> Any:
        return get_hash_for_files((__file__,))

    def __call__(self, graph: fx.Graph) -> None:
        for key, count in Counter(filter(None, map(_key, graph.nodes))).items():
            if count >= FEWEST:
                _batch(graph, key)


def _key(node: fx.Node) -> Key | None:
    """Return what products have in common that can be one; None for another operation."""
    if node.target is not aten.mm.default:
        return None
    values = [(base.meta["val"], turned) for base, turned in map(_base, node.args)]
    if max(value.numel() for value, _ in values) > LARGEST:
        return None
    return values[0][0].dtype, values[0][0].device, *((tuple(value.shape), turned) for value, turned in values)


def _batch(graph: fx.Graph, key: Key) -> None:
    """Batch the products of one key. Those on paths of equal length, counted in such products, are independent of each
    other, and the graph remains without cycles."""
    depths: dict[fx.Node, int] = {}
    groups = defaultdict[int, list[fx.Node]](list)
    for node in graph.nodes:
        depth = max((depths[before] for before in node.all_input_nodes), default=0)
        if _key(node) == key:
            groups[depth].append(node)
            depth += 1
        depths[node] = depth
    for group in groups.values():
        if len(group) >= FEWEST:
            _replace(graph, group)
    stable_topological_sort(graph)


def _base(node: Any) -> tuple[fx.Node, bool]:
    """Return the matrix that a product's operand is or transposes, and whether it does."""
    turned = node.target is aten.permute.default and list(node.args[1]) == [1, 0]
    return (node.args[0], True) if turned else (node, False)


def _replace(graph: fx.Graph, group: Sequence[fx.Node]) -> None:
    def call(target: Any, *args: Any) -> fx.Node:
        node = graph.call_function(target, args)
        node.meta["val"] = target(*fx.map_arg(args, lambda arg: arg.meta["val"]))
        return node

    def stacked(operands: Sequence[Any]) -> fx.Node:
        bases = [_base(operand) for operand in operands]
        whole = call(aten.cat.default, [call(aten.unsqueeze.default, base, 0) for base, _ in bases])
        return call(aten.permute.default, whole, [0, 2, 1]) if bases[0][1] else whole

    with graph.inserting_before(group[-1]):
        product = call(aten.bmm.default, *(stacked(side) for side in zip(*(node.args for node in group), strict=True)))
        for i, node in enumerate(group):
            node.replace_all_uses_with(call(aten.select.int, product, 0, i))
    for node in group:
        graph.erase_node(node)
