"""The cost model of experiments/: a step sends what ranks count, its operations are what torch counts, and schedules
are as the formulas for equal stages have them."""

import importlib
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import altmin
from altmin.calculus.context import BatchShard, Context
from altmin.runners.distributed import Distributed
from altmin.runners.layer_parallel import LayerParallel
from altmin.runners.neighbours import LONGEST
from tests import ranks

sys.path.append(str(Path(__file__).resolve().parents[1] / "experiments"))
cost, path = (importlib.import_module(f"scaling_{name}") for name in ("cost", "critical_path"))
FAST = path.Machine(flops=1.0, latency=0.0, bandwidth=float("inf"))


def normed() -> nn.Sequential:
    """Batch norm in the first block and in a hidden one; piecewise linear blocks, with a kink and without."""
    first = nn.Linear(12, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 8), nn.BatchNorm1d(8), nn.ReLU()
    return nn.Sequential(*first, nn.Linear(8, 7, bias=False), nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 4))


def wide() -> nn.Sequential:
    """Gradients of more than one message."""
    return nn.Sequential(nn.Linear(12, 1100), nn.ReLU(), nn.Linear(1100, 1000), nn.ReLU(), nn.Linear(1000, 4))


MODELS = {
    "mlp": lambda: altmin.models.mlp(12, (9, 8, 7), 4),
    "one layer": lambda: nn.Sequential(nn.Linear(12, 4)),
    "batch norm": normed,
    "wide": wide,
    "lenet": lambda: altmin.models.create("lenet5", (1, 28, 28), 10),
}
METHODS = {
    "am": lambda model: altmin.AltMin(model),
    "am-mem-fitted": lambda model: altmin.AltMin(model, weights=altmin.FittedMemory()),
    "backprop": lambda model: altmin.methods.create("adam", model),
}
CASES = [(name, method) for name in MODELS for method in METHODS]
CUT = [("mlp", 2), ("mlp", 3), ("batch norm", 1), ("lenet", 1)]
"""Networks with consecutive blocks on two ranks, and the first block of the second."""


def samples(name: str, count: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (1, 28, 28) if name == "lenet" else (12,)
    return torch.rand(count, *shape), torch.arange(count) % 4


def counted(rank: int) -> dict[Any, tuple[int, int]]:
    """By the ranks' own counters: messages and bytes of a second step of each method on each model; of one with
    consecutive blocks on the ranks the bytes that each has sent or summed."""
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
        before = layered.ranks.bytes
        layered.step(x, y)
        found[name, cut] = layered.ranks.bytes - before
    return found


@pytest.fixture(scope="module")
def of_ranks() -> list[Any]:
    return ranks.run(2, counted)


@pytest.mark.parametrize(("name", "method"), CASES, ids=[f"{name}-{method}" for name, method in CASES])
def test_a_step_sends_what_the_model_says(name: str, method: str, of_ranks: list[Any]):
    sent = cost.data_parallel(cost.layers(MODELS[name](), samples(name)[0]), method)
    for rank in of_ranks:
        assert rank[name, method] == (sent.messages, sent.bytes)


@pytest.mark.parametrize(("name", "cut"), CUT, ids=[f"{name}-{cut}" for name, cut in CUT])
def test_ranks_with_consecutive_blocks_send_what_the_model_says(name: str, cut: int, of_ranks: list[Any]):
    net = cost.layers(MODELS[name](), samples(name)[0])
    (said,) = cost.layer_parallel(net, [cut], 12, 3)
    shape, verdict = cost.WIDE * LONGEST, cost.verdict(len(net), 2)  # the former is left out of the model
    assert [rank[name, cut] for rank in of_ranks] == [said.up + shape + verdict, said.down + verdict]


@pytest.mark.parametrize("name", ["resnet18-4", "gpt-2x32"])
def test_networks_with_branches_are_counted_too(name: str):
    """In float64, so that the move of no code is lost in rounding; one rank of two, in which the sums are its own."""
    torch.manual_seed(0)
    tokens = name.startswith("gpt")
    model = altmin.models.create(name, (16,) if tokens else (3, 32, 32), 11, tokens).double()
    x = torch.randint(0, 11, (4, 16)) if tokens else torch.rand(4, 3, 32, 32, dtype=torch.float64)
    sizes: list[int] = []

    def begin(flat: torch.Tensor) -> Any:
        sizes.append(flat.numel() * flat.element_size())
        return lambda: flat

    shard = BatchShard(begin, 0, len(x), len(x))
    altmin.AltMin(model).step(x, x if tokens else torch.arange(4), context=Context(shard))
    said = cost.data_parallel(cost.layers(model, x), item=8)
    assert (said.messages, said.bytes) == (len(sizes), sum(sizes) + 8), "and the signature"


def test_the_layers_of_a_network_on_the_meta_device_are_those_of_a_real_one():
    with torch.device("meta"):
        made, x = MODELS["lenet"](), samples("lenet")[0]
    assert cost.layers(made, x) == cost.layers(MODELS["lenet"](), samples("lenet")[0])


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
@pytest.mark.parametrize("method", METHODS)
def test_the_work_of_a_step_is_what_torch_counts(method, activation):
    """Of the memory the column of the bias is not in the pass forward, one of 61 or more."""
    model = altmin.models.mlp(60, (70, 80, 90), 10, activation)
    x, y = torch.randn(64, 60), torch.arange(64) % 10
    trainer = METHODS[method](model)
    trainer.step(x, y)
    with FlopCounterMode(display=False) as counter:
        trainer.step(x, y)
    said = sum(each.total for each in path.work(cost.layers(model, x), 64, method))
    assert said == pytest.approx(counter.get_total_flops(), rel=0.01 if method == "am-mem-fitted" else 1e-12)


EQUAL = [*itertools.product([1, 2, 8], [1, 4, 32], [(1.0, 2.0, 1.0), (1.0, 1.0, 1.0)])]


@pytest.mark.parametrize(("P", "M", "times"), EQUAL, ids=[f"{P}-{M}-{t[0]:g}{t[1]:g}{t[2]:g}" for P, M, t in EQUAL])
def test_equal_stages_take_what_the_formulas_say(P: int, M: int, times: tuple[float, float, float]):
    """1F1B waits (P - 1)(f + d + w). Where weights fill gaps no order is shorter: the last rank begins after (P - 1) f,
    and the last micro-batch is down after (M + P - 1)(f + d), before its weights."""
    f, d, w = times
    hops = [0.0] * (P - 1)
    assert path.makespan([times] * P, M, hops, hops, fill=False) == (M + P - 1) * (f + d + w)
    assert path.makespan([times] * P, M, hops, hops, fill=True) == max(
        (P - 1) * f + M * (f + d + w), (M + P - 1) * (f + d) + w
    )


def test_messages_between_ranks_are_on_the_way_of_the_first_micro_batch_up_and_the_last_one_down():
    net = [cost.Layer((1,), None, 5, 1.0, True, False, (), False)] * 2
    slow = path.Machine(1.0, latency=3.0, bandwidth=2.0)
    up, down = 3 + 5 * 4 * 6 / 2, 3 + (5 * 4 * 6 + 32) / 2
    found = path.layer_parallel_time(net, [1], 6, 1, slow)
    assert found == pytest.approx(path.layer_parallel_time(net, [1], 6, 1, FAST) + up + down)


def test_a_data_parallel_step_waits_for_its_numbers_and_hides_full_messages_of_gradients():
    net = cost.layers(wide(), torch.randn(2, 12))
    for method, passes in (("am", 1), ("backprop", 2)):  # of the middle block: weights, and what is handed down
        sent = cost.data_parallel(net, method)
        first, last = sent.bulk
        meanwhile = 2 * 8 * (12 * 1100 + 1100 * 1000 * passes)
        for part in (1, 2):
            found = path.data_parallel_time(net, 8, 2, path.Machine(part * meanwhile / first, 0.0, 1.0), method)
            assert found["bulk"] == pytest.approx(first * (1 - 1 / part) + last)
        assert found["numbers"] == sum(sent.numbers)
        assert found["norms"] == 0
