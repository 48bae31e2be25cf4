"""The nodes of a graph in groups; each group is one map."""

from collections.abc import Sequence

from torch import fx

from altmin.graph.piece import Segment
from altmin.graph.values import Nodes, is_tensor, with_constants


def regions(nodes: Sequence[fx.Node], flow: Nodes, alone: Nodes, sources: Nodes, made: Nodes) -> list[Segment] | None:
    """Groups of the nodes in `flow`, in an order in which each follows those whose outputs it takes, with the constants
    that they use.

    A node of `alone` is a group by itself. The others are merged as far as no group then depends on itself. Where a
    group would output something other than one tensor, the groups that use it are merged with it; if that does not
    help, its nodes are groups by themselves. None if that fails too. flow: what is computed once; other nodes are
    computed in every group that uses them.
    """
    loose = {node for node in flow if node not in alone}
    apart: set[fx.Node] = set()
    while True:
        groups = _merged([node for node in nodes if node in flow], loose - apart, nodes, {*flow, *sources})
        units = [_unit(group, nodes, {*flow, *sources}) for group in groups]
        used = {node for _, inputs in units for node in inputs} | set(made)
        outputs = [[node for node in group if node in used] for group in groups]
        bad = [(out, group) for out, group in zip(outputs, groups, strict=True) if not _sound(out, group, loose)]
        if not bad:
            return [Segment(*unit, out) for unit, out in zip(units, outputs, strict=True) if out]
        unsound = {node for out, _ in bad for node in out}
        users = {n for group, (_, inputs) in zip(groups, units, strict=True) if unsound & set(inputs) for n in group}
        if not users <= loose and not unsound & set(made):
            loose |= users
        elif any(len(group) > 1 for _, group in bad):
            apart |= {node for _, group in bad for node in group}
        else:
            return None


def _sound(outputs: Sequence[fx.Node], group: Nodes, loose: Nodes) -> bool:
    """Return whether a group outputs one tensor, or nothing; the one output of a node by itself may be of any type."""
    return not outputs or (len(outputs) == 1 and (is_tensor(outputs[0]) or not any(node in loose for node in group)))


def _unit(group: Nodes, nodes: Sequence[fx.Node], among: Nodes) -> tuple[list[fx.Node], list[fx.Node]]:
    """A group with its constants, and its inputs."""
    inner = with_constants(group, among, nodes)
    inputs = dict.fromkeys(source for node in inner for source in node.all_input_nodes if source not in set(inner))
    return inner, list(inputs)


def _merged(order: Nodes, loose: Nodes, nodes: Sequence[fx.Node], among: Nodes) -> list[list[fx.Node]]:
    """Groups in order: loose nodes that feed each other together, unless groups would depend on each other."""
    takes = {node: [source for source in _unit([node], nodes, among)[1] if source in set(order)] for node in order}
    of = {node: i for i, node in enumerate(order)}
    for node in order:
        for source in takes[node] if node in loose else ():
            if source in loose and of[source] != of[node]:
                tried = {n: of[source] if i == of[node] else i for n, i in of.items()}
                of = tried if _sorted(tried, takes) is not None else of
    groups: dict[int, list[fx.Node]] = {}
    for node in order:
        groups.setdefault(of[node], []).append(node)
    ranked = _sorted(of, takes)
    assert ranked is not None
    return [groups[i] for i in ranked]


def _sorted(of: dict[fx.Node, int], takes: dict[fx.Node, list[fx.Node]]) -> list[int] | None:
    """The groups, each after those that it takes from, the first in the graph first; None if two depend on each
    other."""
    needs: dict[int, set[int]] = {}
    for node, i in of.items():
        needs.setdefault(i, set()).update(of[source] for source in takes[node] if of[source] != i)
    ranked: dict[int, None] = {}
    left = dict.fromkeys(needs)
    while left:
        ready = next((i for i in left if needs[i] <= ranked.keys()), None)
        if ready is None:
            return None
        ranked[ready] = left.pop(ready)
    return list(ranked)
