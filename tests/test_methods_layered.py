"""A fully connected net as layers: what is taken, and what is refused in words."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn

from altmin.common.errors import Diverged
from altmin.methods.base import demand_finite, demand_step
from altmin.methods.rivals.layers import layers_of
from altmin.models import mlp


def hooked() -> nn.Module:
    model = mlp(3, (4,), 2)
    model[1].register_forward_hook(lambda *_: None)
    return model


def half_frozen() -> nn.Module:
    model = mlp(3, (4,), 2)
    model[1].bias.requires_grad_(False)
    return model


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    return model


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3)),
        lambda: nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)),
        lambda: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)),
        lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU()),
        lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Dropout()),
        lambda: nn.LSTM(2, 2),
        nn.Sequential,
        hooked,
        half_frozen,
        tied,
        lambda: mlp(3, (4,), 2).requires_grad_(False),
    ],
)
def test_any_other_model_is_refused(make: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        layers_of(make(), "admm", [nn.ReLU])


def test_numbers_that_are_finite_may_have_a_sum_that_is_not() -> None:
    large = torch.full((3, 2), 3e38)
    demand_finite(large, torch.tensor([0, 1, 1]))
    for hidden in (torch.nan, torch.inf, -torch.inf):
        for bad in (large.clone(), torch.zeros(3, 2), torch.full((3, 2), -torch.inf)):
            bad[1, 1] = hidden
            with pytest.raises(ValueError):
                demand_finite(bad, torch.tensor([0, 1, 1]))


@pytest.mark.parametrize(
    "loss, grad, lr, taken",
    [
        *((torch.nan, 1.0, 0.1, False), (1.0, torch.nan, 0.1, False), (1.0, 1e10, 1e3, True), (-1.0, 0.0, 0.1, True)),
        (1.0, 1e20, 0.1, False),  # Adam squares it
    ],
)
def test_a_step_that_would_leave_the_finite_numbers_is_known_before_it_is_taken(
    loss: float, grad: float, lr: float, taken: bool
) -> None:
    weight = nn.Parameter(torch.zeros(2))
    weight.grad = torch.tensor([0.0, grad])
    with nullcontext() if taken else pytest.raises(Diverged):
        demand_step(torch.tensor(loss), torch.optim.SGD([weight], lr))
