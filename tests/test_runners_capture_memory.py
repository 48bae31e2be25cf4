"""A captured step of a co-activation memory: memory, weights and moments are those of the ordinary step, or stay."""

import copy

import pytest
import torch
from capture_cases import NETS, RULES, batches, mlp, pair, same

import altmin
from altmin.calculus.context import LOCAL
from altmin.runners.capture import captured

MEMORIES = [name for name in RULES if "memory" in name]
RULE = RULES["memory"]


def same_memories(a: altmin.AltMin, b: altmin.AltMin, within: float = 1e-9) -> None:
    found, expected = (am.weights.memories for am in (a, b))  # type: ignore[attr-defined]
    assert found.keys() == expected.keys()
    for l, memory in expected.items():
        torch.testing.assert_close(found[l][:2], memory[:2], rtol=within, atol=within)
        assert float(found[l].samples) == pytest.approx(float(memory.samples))


@pytest.mark.parametrize("rule", MEMORIES)
def test_two_ordinary_two_captured_and_two_ordinary_steps_are_six_ordinary_ones(rule):
    torch.manual_seed(0)
    ordinary, other = pair(NETS["two runs"](), RULES[rule])
    data = list(batches(6))
    for x, y in data:
        ordinary.step(x, y)
    for x, y in data[:2]:
        other.step(x, y)
    step = captured(other, False, LOCAL)
    for x, y in data[2:4]:
        step.run(x, y)
    step.pull()
    same_memories(captured_twin(RULES[rule], data[:4]), other)
    for x, y in data[4:]:
        other.step(x, y)
    same(ordinary.model, other.model)
    same_memories(ordinary, other)
    assert other.state_dict()["weights"]["states"][0]["samples"] == pytest.approx(
        sum(12 * other.weights.forget**age for age in range(6))  # type: ignore[attr-defined]
    )


def captured_twin(rule, data) -> altmin.AltMin:
    """The ordinary method after these mini-batches."""
    torch.manual_seed(0)
    am = altmin.AltMin(NETS["two runs"](), weights=rule())
    for x, y in data:
        am.step(x, y)
    return am


@pytest.mark.parametrize("rule", MEMORIES)
def test_a_memory_that_overflows_leaves_weights_memory_moments_and_mu(rule):
    """Of inputs as large as these the loss is finite and the sum of their squares is not."""
    torch.manual_seed(0)
    ordinary, other = pair(mlp(6, 5), RULES[rule], penalty=altmin.Penalty(0.5, increment=0.3, maximum=9.0))
    step, data = captured(other, False, LOCAL), list(batches(4))
    for x, y in data[:2]:
        ordinary.step(x, y)
        step.run(x, y)
    before = [t.clone() for t in step.tensors()[1:]]
    x, y = 1e160 * data[2][0], data[2][1]
    with pytest.raises(altmin.Diverged, match="the update of block 0"):
        ordinary.step(x, y)
    step.run(x, y)
    assert all(torch.equal(a, b) for a, b in zip(before, step.tensors()[1:], strict=True))
    assert step.pull() == 2
    for x, y in data[2:]:
        ordinary.step(x, y)
        step.run(x, y)
    assert step.pull() is None
    assert other.penalty.value == ordinary.penalty.value
    same(ordinary.model, other.model)
    same_memories(ordinary, other)


def test_convolutions_and_batch_norm_beside_a_memory():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(7, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), *mlp(6, 5)[2:]]
    for net, shape in ((torch.nn.Sequential(*layers), (7,)), (altmin.models.lenet5(3), (1, 28, 28))):
        ordinary, other = pair(net.double(), RULE)
        step = captured(other, False, LOCAL)
        for x, y in batches(3, shape):
            ordinary.step(x, y)
            step.run(x, y)
        assert step.pull() is None
        same(ordinary.model, other.model)
        same_memories(ordinary, other)


def test_a_prior_memory_is_gone_on_with_and_stays_as_it_was_given():
    torch.manual_seed(0)
    net = mlp(6, 5)
    first = altmin.AltMin(copy.deepcopy(net), weights=RULE())
    first.step(*next(batches(1, seed=9)))
    prior = first.weights.memories  # type: ignore[attr-defined]
    given = copy.deepcopy(prior)
    ordinary, other = pair(net, lambda: altmin.CoActivationMemory(0.5, rate=1.0, prior=prior))
    step = captured(other, False, LOCAL)
    for x, y in batches(3):
        ordinary.step(x, y)
        step.run(x, y)
    same(ordinary.model, other.model)
    same_memories(ordinary, other)
    assert all(torch.equal(prior[l].A, given[l].A) and torch.equal(prior[l].B, given[l].B) for l in given)


def test_a_frozen_block_keeps_weights_and_memory():
    torch.manual_seed(0)
    net = NETS["a run"]()
    net[4].requires_grad_(False)
    ordinary, other = pair(net, RULE)
    step = captured(other, False, LOCAL)
    for x, y in batches(3):
        ordinary.step(x, y)
        step.run(x, y)
    same(ordinary.model, other.model)
    assert torch.equal(other.model[4].weight, net[4].weight)  # type: ignore[index]
    assert sorted(other.weights.memories) == [0, 1, 3, 4]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "change",
    [
        lambda am: am.model[0].requires_grad_(False),
        lambda am: am.load_state_dict(copy.deepcopy(am.state_dict())),
        lambda am: setattr(am.model[0].weight, "data", am.model[0].weight.data.clone()),
    ],
    ids=["frozen", "loaded", "moved"],
)
def test_what_the_memory_writes_to_may_not_change(change):
    am = altmin.AltMin(mlp(5, 5), weights=RULE())
    step = captured(am, False, LOCAL)
    step.run(*next(batches(1)))
    step.push()
    change(am)
    with pytest.raises(ValueError, match=r"no longer .*make a new Recorded"):
        step.push()


def test_torch_can_trace_the_step_as_a_whole(traced):
    torch.manual_seed(0)
    ordinary, other = pair(NETS["a run"](), RULE)
    step = captured(other, True, LOCAL)
    for x, y in batches(3):
        ordinary.step(x, y)
        step.run(x, y)
    assert step.fuse  # type: ignore[attr-defined]
    same(ordinary.model, other.model)
    same_memories(ordinary, other)
