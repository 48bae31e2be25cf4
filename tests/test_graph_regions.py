"""Groups of nodes: each is computed once, in an order in which its inputs are known, and hands on one tensor."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx

from altmin.graph.regions import regions


def graph_of(program: list[tuple[int, int]]) -> tuple[list[fx.Node], fx.Node]:
    """Node i adds two earlier values; what nobody uses is added up at the end."""
    graph = fx.Graph()
    nodes = [graph.placeholder("x")]
    for i, j in program:
        nodes.append(graph.call_function(torch.add, (nodes[i % len(nodes)], nodes[j % len(nodes)])))
    loose = [node for node in nodes if not node.users]
    total = loose[0]
    for node in loose[1:]:
        total = graph.call_function(torch.add, (total, node))
    graph.output(total)
    return [node for node in graph.nodes if node.op != "output"], total


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=12),
    st.sets(st.integers(0, 20)),
)
def test_groups_are_a_partition_in_order_with_one_output_each(program, chosen):
    nodes, made = graph_of(program)
    flow = nodes[1:]
    alone = {node for i, node in enumerate(flow) if i in chosen}
    found = regions(nodes, flow, alone, nodes[:1], [made])
    if found is None:  # a graph that is one group always can
        assert alone
        return
    assert sorted(n.name for r in found for n in r.nodes) == sorted(n.name for n in flow)
    known = set(nodes[:1])
    for region in found:
        assert set(region.inputs) <= known, "what a group takes comes before it"
        (output,) = region.made
        assert output in region.nodes
        inside = set(region.nodes)
        outside = {n for n in inside if n is made or any(user not in inside for user in n.users if user.op != "output")}
        assert outside == {output}, "nothing else of it is used"
        known.add(output)
