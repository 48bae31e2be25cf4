"""A graph whose calls are opened does what the module does, and knows where modules ended."""

import torch
from torch import Tensor, fx, nn

from altmin.graph.inline import ENDS, inline
from altmin.graph.record import record


class Leaf(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.rest = nn.Linear(3, 3), nn.Identity()

    def forward(self, x: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
        y = self.rest(self.layer(x)) * scale
        return y if mask is None else y * mask


class Tree(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.pair = Leaf(), nn.Sequential(Leaf(), nn.Tanh()), Pair()

    def forward(self, x: Tensor) -> Tensor:
        y = self.b(self.a(x, x > 0, scale=2.0))
        return self.pair((y, x))


class Pair(nn.Module):
    def forward(self, both: tuple[Tensor, Tensor]) -> Tensor:
        return both[0] + both[1]


def opened(wanted=lambda node: True) -> tuple[Tree, fx.Graph]:
    torch.manual_seed(0)
    model = Tree()
    graph = record(model)
    inline(graph, model, wanted)
    graph.lint()
    return model, graph


def test_an_opened_graph_computes_the_same():
    model, graph = opened()
    x = torch.randn(5, 3)
    assert torch.equal(fx.GraphModule(model, graph)(x), model(x))


def test_only_modules_of_ones_own_are_opened_and_identities_vanish():
    _, graph = opened()
    called = [str(node.target) for node in graph.nodes if node.op == "call_module"]
    assert called == ["a.layer", "b.0.layer", "b.1", "pair"], "a tuple is no value that could be handed in"


def test_what_is_not_wanted_stays_a_call():
    model, graph = opened(lambda node: node.target == "b")
    assert [str(node.target) for node in graph.nodes if node.op == "call_module"] == ["a", "b.0", "b.1", "pair"]
    x = torch.randn(5, 3)
    assert torch.equal(fx.GraphModule(model, graph)(x), model(x))


def test_every_value_knows_the_modules_that_end_with_it():
    _, graph = opened()
    ends = {name: node for node in graph.nodes for name in node.meta.get(ENDS, [])}
    assert sorted(ends) == ["a", "a.layer", "a.rest", "b", "b.0", "b.0.layer", "b.0.rest", "b.1", "pair"]
    assert ends["a.rest"] is ends["a.layer"]
    assert ends["b"] is ends["b.1"]
    assert ends["b.0"].target is not ends["b.0.layer"].target
