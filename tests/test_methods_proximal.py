"""Closed forms of one variable against brute force in float64."""

import pytest
import torch
from splitting_reference import F64, by_grid
from torch import Tensor, nn

from altmin.methods.rivals.proximal import LOSSES, clamp_of, preactivations

ACTIVATIONS = [nn.ReLU(), nn.ReLU6(), nn.Hardsigmoid(), nn.Hardtanh(), nn.Hardtanh(-2, 0.5)]


def drawn(*shape: int, seed: int, size: float = 1.0) -> Tensor:
    return size * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


@pytest.mark.parametrize(
    "activation, gamma, beta",
    [*((each, 30.0, 0.1) for each in ACTIVATIONS), (nn.ReLU(), 1.0, 1.0), (nn.Hardtanh(-2, 0.5), 0.1, 3.0)],
    ids=str,
)
def test_a_preactivation_costs_no_more_than_any_point_of_a_grid(
    activation: nn.Module, gamma: float, beta: float
) -> None:
    a, m = drawn(40, 10, seed=1, size=2.0), drawn(40, 10, seed=2, size=4.0)

    def cost(z: Tensor) -> Tensor:
        return gamma * (a - activation(z)) ** 2 + beta * (z - m) ** 2

    found = preactivations(clamp_of(activation), a, m, gamma, beta)
    least = cost(by_grid(cost, (40, 10)))
    assert (cost(found) <= least + 1e-9).all()


@pytest.mark.parametrize("name", ["hinge", "squared"])
@pytest.mark.parametrize("weight", [0.2, 1.0, 5.0])
def test_the_prox_of_a_loss_by_entries_costs_no_more_than_any_point_of_a_grid(name: str, weight: float) -> None:
    targets, v = nn.functional.one_hot(torch.arange(60) % 4).to(F64), drawn(60, 4, seed=5, size=2.0)

    def cost(z: Tensor) -> Tensor:
        if name == "hinge":
            loss = targets * (1 - z).clamp_min(0) + (1 - targets) * z.clamp_min(0)
        else:
            loss = (z - targets) ** 2 / 2
        return loss + weight / 2 * (z - v) ** 2

    found = LOSSES[name](v, weight, targets, v)
    assert (cost(found) <= cost(by_grid(cost, (60, 4))) + 1e-9).all()
