"""Critical paths: operations as torch counts them, schedules as the formulas for equal stages have them."""

import itertools

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import altmin
from altmin.runners.cost import Layer, data_parallel, layers
from altmin.runners.critical_path import (
    Machine,
    Work,
    data_parallel_time,
    even,
    layer_parallel_time,
    makespan,
    work,
)

FAST = Machine(flops=1.0, latency=0.0, bandwidth=float("inf"))


def square(flops: float = 1.0, code: int = 1) -> Layer:
    """A straight block, without kinks."""
    return Layer((1,), None, code, flops, True, False, (), False)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
@pytest.mark.parametrize(
    ("method", "step"),
    [
        ("am", altmin.AltMin),
        ("am-mem", lambda model: altmin.AltMin(model, weights=altmin.CoActivationMemory())),
        ("backprop", lambda model: altmin.methods.create("adam", model)),
    ],
    ids=["am", "am-mem", "backprop"],
)
def test_the_work_of_a_step_is_what_torch_counts(method, step, activation):
    """Of the memory the column of the bias is not in the pass forward, one of 61 or more."""
    model = altmin.models.mlp(60, (70, 80, 90), 10, activation)
    x, y = torch.randn(64, 60), torch.arange(64) % 10
    trainer = step(model)
    trainer.step(x, y)
    with FlopCounterMode(display=False) as counter:
        trainer.step(x, y)
    said = sum(each.total for each in work(layers(model, x), 64, method))
    assert said == pytest.approx(counter.get_total_flops(), rel=0.01 if method == "am-mem" else 1e-12)


def test_ranks_share_all_work_but_the_fit_to_a_memory():
    net = layers(altmin.models.mlp(60, (70, 80), 10), torch.randn(4, 60))
    for a, b in zip(work(net, 64, "am-mem"), work(net, 16, "am-mem"), strict=True):
        assert (a.up, a.down, a.weights) == (4 * b.up, 4 * b.down, 4 * b.weights)
        assert a.whole == b.whole
    assert work(net, 64, "am-mem")[1] == Work(
        2 * 64 * 70 * 80, 4 * 64 * 70 * 80, 2 * 64 * 70 * (80 + 71), 2 * 71 * 71 * 80
    )


def test_a_sum_over_ranks_goes_round_in_a_ring_or_through_a_tree():
    machine = Machine(1.0, latency=2.0, bandwidth=10.0)
    assert machine.all_reduce(0, 8) == 2 * 3 * 2.0, "three levels up and down"
    assert machine.all_reduce(80_000, 8) == pytest.approx(14 * (2.0 + 1000)), "seven ranks, twice, an eighth each"
    assert machine.all_reduce(80_000, 1) == 0
    assert machine.all_reduce(50, 2) == pytest.approx(2 * (2.0 + 2.5))
    assert machine.all_reduce(80, 8) == pytest.approx(2 * 3 * 2.0 + 2 * 8), "a tree passes all of it up and down"


EQUAL = [*itertools.product([1, 2, 4, 8], [1, 4, 8, 32], [(1.0, 2.0, 1.0), (1.0, 1.0, 1.0)])]


@pytest.mark.parametrize(("P", "M", "times"), EQUAL, ids=[f"{P}-{M}-{t[0]:g}{t[1]:g}{t[2]:g}" for P, M, t in EQUAL])
def test_equal_stages_take_what_the_formulas_say(P: int, M: int, times: tuple[float, float, float]):
    """1F1B waits (P - 1)(f + d + w). Where weights fill gaps no order is shorter: the last rank begins after (P - 1) f,
    and the last micro-batch is down after (M + P - 1)(f + d), before its weights."""
    f, d, w = times
    hops = [0.0] * (P - 1)
    assert makespan([times] * P, M, hops, hops, fill=False) == (M + P - 1) * (f + d + w)
    assert makespan([times] * P, M, hops, hops, fill=True) == max(
        (P - 1) * f + M * (f + d + w), (M + P - 1) * (f + d) + w
    )


@pytest.mark.parametrize("times", [(2.0, 3.0, 1.0), (3.0, 1.0, 2.0), (1.0, 1.0, 5.0)], ids=str)
def test_weights_in_gaps_take_no_longer_than_1f1b_and_no_less_than_the_work(times: tuple[float, float, float]):
    """The last rank begins after (P - 1) f; the last micro-batch is down after (M + P - 1)(f + d), before its
    weights."""
    (f, d, w), P, M = times, 4, 12
    found = makespan([times] * P, M, [0.0] * 3, [0.0] * 3, fill=True)
    assert found <= makespan([times] * P, M, [0.0] * 3, [0.0] * 3, fill=False) == (M + P - 1) * (f + d + w)
    assert found >= max((P - 1) * f + M * (f + d + w), (M + P - 1) * (f + d) + w)


def test_one_micro_batch_passes_all_ranks_up_and_down_with_its_messages():
    stages = [(1.0, 10.0, 5.0), (2.0, 20.0, 7.0), (3.0, 30.0, 0.0)]
    assert makespan(stages, 1, [0.1, 0.2], [0.3, 0.4], fill=True) == pytest.approx(6 + 60 + 5 + 1.0)
    assert makespan(stages, 1, [0.1, 0.2], [0.3, 0.4], fill=False) == pytest.approx(6 + 60 + 12 + 1.0)


def test_a_layer_parallel_step_of_equal_blocks_is_the_makespan_of_equal_stages():
    """Six blocks and what is not equal, the first and the last, which are nothing here."""
    net = [square(0.0), *[square(4.0) for _ in range(6)], square(0.0)]
    common = {"batch": 8, "micro_batches": 4, "machine": FAST}
    f, d, w = 3 * 4.0 * 2, 3 * 8.0 * 2, 3 * 4.0 * 2
    assert layer_parallel_time(net, [4], **common) == f + 4 * (f + d + w)
    assert layer_parallel_time(net, [4], **common, method="backprop", fill=False) == 5 * (f + 2 * f)


def test_messages_between_ranks_are_on_the_way_of_the_first_micro_batch_up_and_the_last_one_down():
    net = [square(1.0, code=5), square(1.0)]
    slow = Machine(1.0, latency=3.0, bandwidth=2.0)
    up, down = 3 + 5 * 4 * 6 / 2, 3 + (5 * 4 * 6 + 32) / 2
    found = layer_parallel_time(net, [1], 6, 1, slow)
    assert found == pytest.approx(layer_parallel_time(net, [1], 6, 1, FAST) + up + down)


def test_blocks_are_cut_evenly():
    """Work of 2 (the first has none below), 4, 4, 4 and 5 (the last is passed once more) times flops."""
    net = [square(2.0), square(1.0), square(1.0), square(1.0), square(0.8)]
    assert even(net, 1) == []
    assert even(net, 2) == [2]  # 4 + 4 | 4 + 4 + 4
    assert even(net, 5) == [1, 2, 3, 4]
    for P in (2, 3, 4):
        sizes = [b.total for b in work(net, 1)]
        longest = [
            max(sum(sizes[a:b]) for a, b in itertools.pairwise([0, *cuts, 5]))
            for cuts in itertools.combinations(range(1, 5), P - 1)
        ]
        found = even(net, P)
        assert max(sum(sizes[a:b]) for a, b in itertools.pairwise([0, *found, 5])) == min(longest)
    with pytest.raises(ValueError, match="5 blocks is cut for 1 to 5 ranks, given 6"):
        even(net, 6)


def test_a_data_parallel_step_waits_for_its_numbers_and_hides_its_gradients():
    net = layers(altmin.models.mlp(60, (70, 80), 10), torch.randn(4, 60))
    sent = data_parallel(net)
    machine = Machine(flops=1e3, latency=0.5, bandwidth=1e9)
    found = data_parallel_time(net, 16, 4, machine)
    each = work(net, 16)
    assert found["compute"] == pytest.approx(sum(b.total for b in each) / 1e3)
    assert found["numbers"] == pytest.approx(sum(4 * 0.5 + 2 * n / 1e9 for n in sent.numbers))
    assert found["norms"] == 0
    assert found["bulk"] == pytest.approx(machine.all_reduce(sent.bulk[-1], 4)), "one message, which nothing hides"
    slow = Machine(flops=float("inf"), latency=0.0, bandwidth=1.0)
    assert data_parallel_time(net, 16, 2, slow)["bulk"] == pytest.approx(sum(sent.bulk))


def test_full_messages_of_gradients_leave_while_blocks_below_are_computed():
    model = nn.Sequential(nn.Linear(12, 1100), nn.ReLU(), nn.Linear(1100, 1000), nn.ReLU(), nn.Linear(1000, 4))
    net = layers(model, torch.randn(2, 12))
    for method, passes in (
        ("am", (1, 1)),
        ("backprop", (1, 2)),
    ):  # of the blocks below: weights, and what is handed down
        first, last = data_parallel(net, method).bulk
        meanwhile = 2 * 8 * (12 * 1100 * passes[0] + 1100 * 1000 * passes[1])
        enough, half = Machine(meanwhile / first, 0.0, 1.0), Machine(2 * meanwhile / first, 0.0, 1.0)
        assert data_parallel_time(net, 8, 2, enough, method)["bulk"] == pytest.approx(last)
        assert data_parallel_time(net, 8, 2, half, method)["bulk"] == pytest.approx(first / 2 + last)
