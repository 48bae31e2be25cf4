"""Where parameters and moments are in memory: each has its own, and moments are where the weights are."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from trainer_cases import batch, mlp

import altmin
from altmin.common.state import demand_separate
from altmin.methods.backprop import Backprop


@pytest.mark.parametrize("rule", [altmin.LocalAdam, altmin.LocalSGD])
def test_moments_of_weights_that_lie_otherwise_in_memory_are_put_where_they_belong(rule: Any) -> None:
    """A checkpoint keeps tensors row by row; a fused kernel goes through weights and moments side by side."""
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)
    model = nn.Sequential(*layers).to(memory_format=torch.channels_last)
    x, y = torch.randn(5, 2, 8, 8), torch.tensor([0, 1, 2, 0, 1])
    am = altmin.AltMin(model, weights=rule(lr=0.01))
    am.step(x, y)
    state = copy.deepcopy(am.state_dict())
    for entry in state["weights"]["optimizer"]["state"].values():
        for name in entry:
            entry[name] = entry[name].contiguous()
    twin = copy.deepcopy(model)
    other = altmin.AltMin(twin, weights=rule(lr=0.01))
    other.load_state_dict(state)
    for each in (am, other):
        each.step(x, y)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), twin.parameters(), strict=True))


def expanded(model: nn.Sequential) -> None:
    model[0].weight = nn.Parameter(torch.zeros(1, 1).expand(8, 4))


def with_gaps(model: nn.Sequential) -> None:
    model[0].weight = nn.Parameter(torch.zeros(8, 9)[:, :4])


def overlapping(model: nn.Sequential) -> None:
    whole = torch.zeros(40)
    model[0].weight, model[0].bias = nn.Parameter(whole[:32].view(8, 4)), nn.Parameter(whole[31:39])


LAYOUTS = {
    expanded: r"parameter 0.weight, of shape \(8, 4\) and strides \(0, 0\), is expanded or has gaps",
    with_gaps: r"parameter 0.weight, of shape \(8, 4\) and strides \(9, 1\), is expanded or has gaps",
    overlapping: "parameter 0.bias shares memory with 0.weight",
}


@pytest.mark.parametrize("spoil", LAYOUTS)
def test_parameters_without_memory_of_their_own_are_refused_with_the_remedy(spoil: Any) -> None:
    model = mlp(dtype=torch.float32)
    spoil(model)
    message = LAYOUTS[spoil] + r"; give it memory of its own before training: p.data = p.data.clone\(\)"
    makers: list[Callable[[], Any]] = [
        lambda: altmin.AltMin(model),
        lambda: altmin.methods.create("adam", model, fused=True),
        lambda: Backprop(model, torch.optim.SGD(model.parameters(), 0.1, fused=True)),
    ]
    for make in makers:
        with pytest.raises(ValueError, match=message):
            make()
    altmin.methods.create("sgd", model)  # torch's own steps go by strides
    for p in model.parameters():
        p.data = p.data.clone(memory_format=torch.contiguous_format)
    altmin.AltMin(model).step(*batch(dtype=torch.float32))


def test_weights_side_by_side_transposed_or_frozen_are_welcome() -> None:
    whole = torch.zeros(60)
    parts = [nn.Parameter(part) for part in (whole[:20].view(4, 5).t(), whole[20:40].view(2, 2, 5), whole[40:])]
    parts += [nn.Parameter(torch.zeros(0, 3)), nn.Parameter(torch.zeros(()))]
    frozen = nn.Parameter(torch.zeros(1).expand(4), requires_grad=False)
    demand_separate([(str(i), p) for i, p in enumerate([*parts, frozen])])
    inside = nn.Parameter(whole[3:5], requires_grad=False)
    with pytest.raises(ValueError, match="parameter inside shares memory with 0"):
        demand_separate([("0", parts[0]), ("inside", inside)])
