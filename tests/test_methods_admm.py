"""ADMM: the weights of its terms, its multiplier, and what the weights of the terms are for."""

import pytest
import torch
from method_cases import net, problem
from splitting_reference import F64, by_grid
from torch import Tensor, nn

import altmin


def created(**options: float | str) -> altmin.methods.Method:
    return altmin.methods.create("admm", net("admm", dtype=F64), **options)


def test_the_weights_of_terms_shrink_towards_the_input() -> None:
    """rho = 2 beta: beta_L = gamma_prod, beta_l = shrink beta_(l+1), and so for gamma."""
    found = created(gamma_prod=0.5, gamma_nonlin=0.3, shrink=0.1).penalties  # type: ignore[attr-defined]
    assert found.rho == pytest.approx([2 * 0.005, 2 * 0.05, 2 * 0.5])
    assert found.gamma[:2] == pytest.approx([2 * 0.003, 2 * 0.03])
    equal = created(gamma_prod=54.0, gamma_nonlin=583.0, shrink=1.0).penalties  # type: ignore[attr-defined]
    assert equal.rho == [108.0] * 3
    assert equal.gamma[:2] == [1166.0] * 2


def outputs(passes: int, warmup: int) -> tuple[Tensor, Tensor, Tensor]:
    """After these passes and one more step of a linear model: z, the multiplier, and W x for the weights before."""
    x, y = problem(40, dtype=F64)
    torch.manual_seed(0)
    method = altmin.methods.create("admm", nn.Linear(4, 3).to(F64), gamma_prod=0.2, warmup=warmup, start=1.0)
    for _ in range(passes):
        method.step(x, y)
        method.end_epoch()
    m = method.model(x).detach()
    method.step(x, y)
    kept = method.table.read(torch.arange(40))  # type: ignore[attr-defined]
    return kept["z1"], kept["multiplier"], m


def test_the_multiplier_waits_for_the_warm_up_and_then_adds_beta_times_the_residual() -> None:
    for passes in (0, 1):
        assert not outputs(passes, warmup=2)[1].any()
    z, multiplier, m = outputs(2, warmup=2)
    assert torch.allclose(multiplier, 0.2 * (z - m))
    later, after, m = outputs(3, warmup=2)
    assert torch.allclose(after, multiplier + 0.2 * (later - m))


def test_with_the_papers_hinge_the_output_is_the_minimum_over_a_grid() -> None:
    x, y = problem(40, dtype=F64)
    torch.manual_seed(0)
    method = altmin.methods.create("admm", nn.Linear(4, 3).to(F64), gamma_prod=0.7, warmup=0, start=1.0, loss="hinge")
    method.step(x, y)
    before = method.table.read(torch.arange(40))["multiplier"]  # type: ignore[attr-defined]
    method.end_epoch()
    m, Y = method.model(x).detach(), nn.functional.one_hot(y, 3).bool()

    def cost(z: Tensor) -> Tensor:
        hinge = torch.where(Y, 1 - z, z).clamp_min(0)
        return hinge + before * z + 0.7 * (z - m) ** 2

    method.step(x, y)
    z = method.table.read(torch.arange(40))["z1"]  # type: ignore[attr-defined]
    assert (cost(z) <= cost(by_grid(cost, (40, 3))) + 1e-9).all()
