"""What is known of a graph's values before there are numbers."""

import torch
from torch import Tensor, nn

from altmin.graph.record import record
from altmin.graph.values import aside, is_tensor, numbers, passing, with_constants, without_unused


class Masked(nn.Module):
    """Tokens, a mask made of them, sizes, and constants."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(5, 4), nn.Linear(4, 4)
        self.shift = nn.Parameter(torch.zeros(4))

    def forward(self, tokens: Tensor) -> Tensor:
        steps = tokens.shape[1]
        unused = tokens.size(0)  # noqa: F841
        mask = tokens.ne(0).unsqueeze(-1)
        places = torch.arange(steps) + 1
        h = self.table(tokens) + self.shift * 2
        left, right = self.layer(h).chunk(2, -1)
        return (left * mask).sum(1) + right[:, steps - 1] * places.sum()


def named(model: nn.Module):
    nodes = without_unused(record(model))
    return nodes, {node.name: node for node in nodes}


def test_values_without_derivative_are_sizes_integers_and_what_functions_make_of_them():
    model = Masked()
    nodes, by_name = named(model)
    given = [nodes[0]]
    still = {node.name for node in aside(model, nodes, given)}
    assert {"input_1", "getattr_1", "getitem", "ne", "unsqueeze", "arange"} <= still
    assert not {"table", "layer", "chunk", "mul_1", "add_1"} & still
    assert {node.name for node in numbers(nodes)} >= {"getattr_1", "getitem"}
    assert by_name["arange"] not in numbers(nodes)


def test_what_depends_on_the_input_passes_and_constants_come_along():
    nodes, by_name = named(Masked())
    flow = passing(nodes, [nodes[0]])
    assert by_name["shift"] not in flow
    assert by_name["table"] in flow
    product = next(node for node in nodes if by_name["shift"] in node.all_input_nodes)
    assert product not in flow
    total = next(user for user in product.users)
    assert with_constants([total], flow, nodes) == [by_name["shift"], product, total]


def test_sizes_that_nobody_uses_are_left_out():
    nodes, _ = named(Masked())
    assert not any(node.target == "size" for node in nodes)


def test_what_is_indexed_by_number_may_be_no_tensor():
    _, by_name = named(Masked())
    assert not is_tensor(by_name["chunk"])
    assert not is_tensor(by_name["getattr_1"])
    assert is_tensor(by_name["layer"])
