"""A network that grows while it learns is held against one that had its inputs from the start and saw zeros there."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("river")
from altmin import methods, models
from altmin.stream import growth
from altmin.stream.settings import DEFAULTS

NAMES = sorted(DEFAULTS)
OLD, NEW = 3, 2


def trained(name: str, steps: int = 5, hidden: tuple[int, ...] = (6, 5)) -> Any:
    torch.manual_seed(0)
    method = methods.create(name, models.mlp(OLD, hidden, 3).double(), **DEFAULTS[name])
    for x, y in samples(steps, OLD):
        method.step(x, y)
    return method


def samples(steps: int, inputs: int) -> list[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(inputs)
    x = torch.randn(steps, 1, inputs, generator=random, dtype=torch.float64)
    return [(x[i], torch.tensor([i % 3])) for i in range(steps)]


def new_weights() -> Tensor:
    return torch.linspace(-1, 1, 6 * NEW, dtype=torch.float64).reshape(6, NEW)


def padded(x: Tensor) -> Tensor:
    return nn.functional.pad(x, (0, NEW))


@pytest.mark.parametrize("name", NAMES)
def test_new_inputs_change_nothing_where_they_are_zero(name: str) -> None:
    method, x = trained(name), torch.randn(7, OLD, dtype=torch.float64)
    with torch.no_grad():
        before = method.model(x)
    growth.add_inputs(method, new_weights())
    torch.testing.assert_close(method.model(padded(x)), before, rtol=1e-13, atol=1e-13)
    assert torch.equal(method.model[1].weight[:, OLD:], new_weights())


@pytest.mark.parametrize("name", NAMES)
def test_learning_goes_on_as_in_a_network_that_had_the_inputs_from_the_start(name: str) -> None:
    torch.manual_seed(0)
    model = models.mlp(OLD, (6, 5), 3).double()
    whole = models.mlp(OLD + NEW, (6, 5), 3).double()
    whole.load_state_dict({**model.state_dict(), "1.weight": torch.cat([model[1].weight, new_weights()], 1)})
    # the damping of a memory is in units of the mean over all inputs, to which inputs of zero belong
    options = {**DEFAULTS[name], **({"damping": 0.0} if name == "am-mem" else {})}
    late, early = (methods.create(name, net, **options) for net in (model, whole))
    for x, y in samples(6, OLD):
        late.step(x, y)
        early.step(padded(x), y)
    growth.add_inputs(late, new_weights())
    for x, y in samples(6, OLD + NEW):
        torch.testing.assert_close(late.step(x, y).loss, early.step(x, y).loss, rtol=1e-9, atol=1e-12)
    for p, q in zip(late.model.parameters(), early.model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12)


def test_moments_of_old_inputs_stay_and_those_of_new_ones_are_zero() -> None:
    method = trained("am-adam")
    weight = method.model[1].weight
    before = copy.deepcopy(method.optimizer.state[weight])
    growth.add_inputs(method, new_weights())
    assert method.model[1].weight is weight
    for name in ("exp_avg", "exp_avg_sq"):
        after = method.optimizer.state[weight][name]
        assert torch.equal(after[:, :OLD], before[name])
        assert before[name].any()
        assert torch.equal(after[:, OLD:], torch.zeros(6, NEW, dtype=torch.float64))
    assert method.optimizer.state[weight]["step"] == before["step"] == 5


def test_the_memory_keeps_what_it_knew_and_has_seen_nothing_of_new_inputs() -> None:
    method = trained("am-mem")
    before = method.weights.memories[0]
    growth.add_inputs(method, new_weights())
    after = method.weights.memories[0]
    kept = [*range(OLD), OLD + NEW]  # the bias is the last column
    fresh = [*range(OLD, OLD + NEW)]
    torch.testing.assert_close(after.A[kept][:, kept], before.A)
    torch.testing.assert_close(after.B[:, kept], before.B)
    assert not after.A[fresh].any()
    assert not after.A[:, fresh].any()
    assert not after.B[:, fresh].any()
    assert after.samples == before.samples


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("hidden", [(6, 5), ()])
def test_new_outputs_leave_the_others_as_they_were_and_can_be_learnt(name: str, hidden: tuple[int, ...]) -> None:
    method, x = trained(name, hidden=hidden), torch.randn(7, OLD, dtype=torch.float64)
    with torch.no_grad():
        before = method.model(x)
    growth.add_outputs(method, 2)
    with torch.no_grad():
        after = method.model(x)
    torch.testing.assert_close(after[:, :3], before, rtol=1e-13, atol=1e-13)
    assert not after[:, 3:].any()
    for _ in range(100):
        method.step(x[:1], torch.tensor([4]))
    assert method.model(x[:1]).argmax() == 4


def test_moments_of_old_outputs_stay() -> None:
    method = trained("adam")
    bias = method.model[-1].bias
    before = method.optimizer.state[bias]["exp_avg"].clone()
    growth.add_outputs(method, 2)
    assert method.optimizer.state[bias]["exp_avg"].tolist() == [*before.tolist(), 0.0, 0.0]
