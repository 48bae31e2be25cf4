"""Products of one shape in one: the same function, with fewer products."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from altmin.runners.batching import BatchedProducts

F64 = torch.float64
SIZE, DEPTH = 5, 6


def passes(x: Tensor, *W: Tensor) -> list[Tensor]:
    """A forward pass, the vjps of its layers, and then of each the jvp and the gradient, which depend on no other."""
    codes = [x]
    for each in W:
        codes.append(torch.mm(codes[-1], each.t()).relu())
    deltas = [codes[-1]]
    for each in reversed(W):
        deltas.append(torch.mm(deltas[-1], each))
    jvps = [torch.mm(delta, each.t()) for delta, each in zip(deltas[1:], reversed(W), strict=True)]
    total = torch.stack([q.square().sum() for q in jvps]).sum()
    rest = [delta - q / total for delta, q in zip(deltas, jvps, strict=False)]
    return [torch.mm(r.t(), a) for r, a in zip(rest, reversed(codes[:-1]), strict=True)]


def crossed(x: Tensor, *W: Tensor) -> list[Tensor]:
    """Of products a and b of two kinds, half the b follow an a, and half the a follow a b. All a may be one product,
    but then not all b."""
    found = []
    for each in W:
        found.append(torch.mm(each, torch.mm(x, each).t()))
        found.append(torch.mm(torch.mm(each, x.t()).t() + 1, each))
    return found


def count(graph: torch.fx.Graph, target: object) -> int:
    return sum(node.target is target for node in graph.nodes)


def traced(function: Callable[..., list[Tensor]]) -> tuple[torch.fx.GraphModule, list[Tensor]]:
    """The graph of a function, as inductor's decompositions leave it, and its arguments."""
    torch.manual_seed(0)
    given = [torch.randn(4, SIZE, dtype=F64), *(torch.randn(SIZE, SIZE, dtype=F64) for _ in range(DEPTH))]
    module = make_fx(function, tracing_mode="fake")(*given)
    for node in module.graph.nodes:
        if node.target is torch.ops.aten.t.default:
            node.target, node.args = torch.ops.aten.permute.default, (node.args[0], [1, 0])
    return module, given


@pytest.mark.parametrize("function, batches, left", [(passes, 2, 2 * DEPTH), (crossed, 3, 0)])
def test_batched_products_are_those_of_the_graph(function, batches, left):
    module, given = traced(function)
    assert count(module.graph, torch.ops.aten.mm.default) == 4 * DEPTH
    BatchedProducts()(module.graph)
    module.graph.lint()
    module.recompile()
    assert count(module.graph, torch.ops.aten.bmm.default) == batches
    assert count(module.graph, torch.ops.aten.mm.default) == left
    torch.testing.assert_close(module(*given), function(*given), rtol=1e-12, atol=1e-12)


def test_few_products_stay_as_they_are(monkeypatch):
    monkeypatch.setattr("altmin.runners.batching.FEWEST", DEPTH + 1)
    module, _ = traced(passes)
    BatchedProducts()(module.graph)
    assert count(module.graph, torch.ops.aten.mm.default) == 4 * DEPTH


def test_large_products_stay_as_they_are(monkeypatch):
    monkeypatch.setattr("altmin.runners.batching.LARGEST", SIZE * SIZE - 1)
    module, _ = traced(passes)
    BatchedProducts()(module.graph)
    assert count(module.graph, torch.ops.aten.bmm.default) == 1, "the gradients, of operands of 20 entries"
