"""The cost model: what it says a step sends is what real steps of several ranks count."""

from typing import Any

import pytest
import torch
from torch import nn

import altmin
from altmin.calculus.context import BUCKET, BatchShard, Context
from altmin.runners.cost import Boundary, Layer, Traffic, data_parallel, layer_parallel, layers, verdict
from altmin.runners.distributed import Distributed
from altmin.runners.layer_parallel import LayerParallel
from tests import ranks


def normed() -> nn.Sequential:
    """Batch norm in the first block and in a hidden one; blocks that are straight, with a kink and without."""
    first = nn.Linear(12, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 8), nn.BatchNorm1d(8), nn.ReLU()
    return nn.Sequential(*first, nn.Linear(8, 7, bias=False), nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 4))


def wide() -> nn.Sequential:
    """Gradients of more than one message."""
    return nn.Sequential(nn.Linear(12, 1100), nn.ReLU(), nn.Linear(1100, 1000), nn.ReLU(), nn.Linear(1000, 4))


MODELS = {
    "mlp": lambda: altmin.models.mlp(12, (9, 8, 7), 4),
    "tanh": lambda: altmin.models.mlp(12, (9, 8, 7), 4, nn.Tanh),
    "one layer": lambda: nn.Sequential(nn.Linear(12, 4)),
    "batch norm": normed,
    "wide": wide,
    "lenet": lambda: altmin.models.create("lenet5", (1, 28, 28), 10),
}
METHODS = {
    "am": lambda model: altmin.AltMin(model),
    "am-mem": lambda model: altmin.AltMin(model, weights=altmin.CoActivationMemory()),
    "backprop": lambda model: altmin.methods.create("adam", model),
}
CASES = [(name, method) for name in MODELS for method in METHODS]
CUT = [("mlp", 2), ("mlp", 3), ("tanh", 2), ("batch norm", 1), ("lenet", 1)]
"""Networks with consecutive blocks on two ranks, and the first block of the second."""


def samples(name: str, count: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (1, 28, 28) if name == "lenet" else (12,)
    return torch.rand(count, *shape), torch.arange(count) % 4


def counted(rank: int) -> dict[Any, tuple[int, int]]:
    """By the ranks' own counters: messages and bytes of a second step of each method on each model; of one with
    consecutive blocks on the ranks the bytes to the other rank, and those summed over ranks."""
    found = {}
    for name, method in CASES:
        torch.manual_seed(0)
        each = Distributed(METHODS[method](MODELS[name]()))
        x, y = samples(name)
        each.step(x, y)
        before = each.ranks.messages, each.ranks.bytes
        each.step(x, y)
        found[name, method] = each.ranks.messages - before[0], each.ranks.bytes - before[1]
    for name, cut in CUT:
        layered = LayerParallel(altmin.AltMin(MODELS[name]()), 3, cuts=[cut])
        x, y = samples(name)
        layered.step(x, y)
        before = layered.neighbours.sent, layered.column.bytes
        layered.step(x, y)
        found[name, cut] = layered.neighbours.sent - before[0], layered.column.bytes - before[1]
    return found


@pytest.fixture(scope="module")
def of_ranks() -> list[Any]:
    return ranks.run(2, counted)


@pytest.mark.parametrize(("name", "method"), CASES, ids=[f"{name}-{method}" for name, method in CASES])
def test_a_step_sends_what_the_model_says(name: str, method: str, of_ranks: list[Any]):
    sent = data_parallel(layers(MODELS[name](), samples(name)[0]), method)
    for rank in of_ranks:
        assert rank[name, method] == (sent.messages, sent.bytes)


@pytest.mark.parametrize(("name", "cut"), CUT, ids=[f"{name}-{cut}" for name, cut in CUT])
def test_ranks_with_consecutive_blocks_send_what_the_model_says(name: str, cut: int, of_ranks: list[Any]):
    net = layers(MODELS[name](), samples(name)[0])
    (said,) = layer_parallel(net, [cut], 12, 3)
    assert of_ranks[0][name, cut] == (said.up, verdict(len(net), 2))
    assert of_ranks[1][name, cut] == (said.down, verdict(len(net), 2))


def recorded(am: Any, x: torch.Tensor, y: torch.Tensor) -> Traffic:
    """What one rank of two would send in a step, in which the sums are its own."""
    sizes: list[int] = []

    def begin(flat: torch.Tensor) -> Any:
        sizes.append(flat.numel() * flat.element_size())
        return lambda: flat

    am.step(x, y, context=Context(BatchShard(begin, 0, len(x), len(x))))
    return Traffic((), (), (sizes[0] + 8, *sizes[1:]))  # the signature


def test_a_residual_network_with_batch_norm_is_counted_too():
    """In float64, so that the move of no code is lost in rounding."""
    model = altmin.models.create("resnet18-4", (3, 32, 32), 10).double()
    x, y = torch.rand(4, 3, 32, 32, dtype=torch.float64), torch.arange(4)
    said, found = data_parallel(layers(model, x), item=8), recorded(altmin.AltMin(model), x, y)
    assert (said.messages, said.bytes) == (found.messages, found.bytes)


def test_a_gpt_is_counted_too():
    torch.manual_seed(0)
    model = altmin.models.gpt(2, 32, 2, 16, 11).double()
    x = torch.randint(0, 11, (4, 16))
    said, found = data_parallel(layers(model, x), "am", 8), recorded(altmin.AltMin(model), x, x)
    assert (said.messages, said.bytes) == (found.messages, found.bytes)


def test_the_layers_of_a_network_on_the_meta_device_are_those_of_a_real_one():
    with torch.device("meta"):
        made, x = MODELS["lenet"](), samples("lenet")[0]
    meta = layers(made, x)
    real = layers(MODELS["lenet"](), samples("lenet")[0])
    assert meta == real
    assert real[0] == Layer((150, 6), (26, 6), 6 * 28 * 28, 2 * 25 * 6 * 28 * 28, True, False, (), False)
    assert real[2] == Layer((48000, 120), (401, 120), 120, 2 * 400 * 120, True, True, (), False)


def test_a_ring_sends_each_part_of_a_message_on_to_all_other_ranks_twice():
    """Once to be summed and once as the sum: 2 (R - 1) parts of 1 / R each."""
    sent = Traffic((8, 16), (), (4000,))
    assert [sent.sent(r) for r in (1, 2, 4)] == [0, 4024, pytest.approx(6036)]


def test_gradients_leave_in_messages_that_are_full():
    net = layers(wide(), samples("wide")[0])
    top, middle, bottom = (4 * net[l].parameters for l in (2, 1, 0))
    assert top < BUCKET <= top + middle
    assert data_parallel(net).bulk == (top + middle, bottom + 4)
    assert data_parallel(net, "backprop").bulk == (bottom + 4 * 1_100_000, 4 * 1000 + top)


def test_between_ranks_with_consecutive_blocks_go_codes_and_the_gradients_at_them():
    net = layers(normed(), samples("batch norm")[0])
    up = 4 * 100
    assert layer_parallel(net, [1, 2, 3, 4], 100, 5) == [
        Boundary(up * 10, up * 10 + 5 * 32),
        Boundary(up * 8, 2 * up * 8 + 5 * 32),  # the block above stops codes at its kinks, so they have moved less
        Boundary(up * 7, up * 7 + 5 * 32),
        Boundary(up * 6, up * 6 + 5 * 32),
    ]
    assert layer_parallel(net, [2], 100, 5, method="backprop") == [Boundary(up * 8, up * 8)]


def test_below_the_output_a_code_moves_along_its_gradient_so_that_no_offset_is_sent():
    net = layers(altmin.models.mlp(12, (9, 8, 7), 4), samples("mlp")[0])
    assert layer_parallel(net, [2, 3], 10, 1) == [Boundary(40 * 8, 2 * 40 * 8 + 32), Boundary(40 * 7, 40 * 7 + 32)]


def test_the_verdict_of_four_blocks_on_two_ranks():
    """Two flags, the loss, three numbers of each block and a signature, in float64."""
    assert verdict(4, 2) == 8 * (2 + 1 + 12 + 1)


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match=r"known of am, am-mem, backprop, given 'adm'"):
        data_parallel(layers(wide(), samples("wide")[0]), "adm")
