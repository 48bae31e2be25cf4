"""BCD: its output variables against generic minimisation, and its options."""

import pytest
import torch
from method_cases import net, problem
from splitting_reference import F64, by_lbfgs
from torch import Tensor, nn

import altmin


@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
def test_outputs_are_the_minima_of_their_own_problems(loss: str) -> None:
    """V_N of loss + gamma / 2 |V - U|^2 + alpha / 2 |V - old|^2, U_N of gamma / 2 |V - U|^2 + rho / 2 |U - Wx|^2."""
    x, y = problem(40, dtype=F64)
    Y = nn.functional.one_hot(y, 3).to(F64)
    torch.manual_seed(0)
    method = altmin.methods.create("bcd", nn.Linear(4, 3).to(F64), rho=0.7, gamma=1.3, alpha=0.4, loss=loss, start=1.0)
    for _ in range(2):
        method.step(x, y)
        method.end_epoch()
    old = method.table.read(torch.arange(40))  # type: ignore[attr-defined]
    m = method.model(x).detach()

    def cost(v: Tensor) -> Tensor:
        own = 0.5 * (v - Y).square().sum() if loss == "squared" else nn.functional.cross_entropy(v, y, reduction="sum")
        return own + 1.3 / 2 * (v - old["z1"]).square().sum() + 0.4 / 2 * (v - old["output"]).square().sum()

    method.step(x, y)
    new = method.table.read(torch.arange(40))  # type: ignore[attr-defined]
    assert torch.allclose(new["output"], by_lbfgs(cost, old["output"]), atol=1e-6)
    expected = by_lbfgs(
        lambda u: 1.3 / 2 * (new["output"] - u).square().sum() + 0.7 / 2 * (u - m).square().sum(), old["z1"]
    )
    assert torch.allclose(new["z1"], expected, atol=1e-6)


def test_weights_have_the_proximal_term_of_the_paper() -> None:
    """[W, b] = (alpha old + rho U V^T) (alpha I + rho V V^T)^-1 for V with a row of ones."""
    x, y = problem(40, dtype=F64)
    torch.manual_seed(0)
    model = nn.Linear(4, 3).to(F64)
    old = torch.cat([model.weight, model.bias.unsqueeze(1)], 1).detach()
    method = altmin.methods.create("bcd", model, rho=0.7, alpha=20.0, ridge=0.0, start=1.0)
    method.step(x, y)
    U = method.table.read(torch.arange(40))["z1"]  # type: ignore[attr-defined]
    method.end_epoch()
    V = torch.cat([x, torch.ones(40, 1, dtype=F64)], 1)
    expected = (20.0 * old + 0.7 * U.mT @ V) @ torch.linalg.inv(20.0 * torch.eye(5, dtype=F64) + 0.7 * V.mT @ V)
    assert torch.allclose(torch.cat([model.weight, model.bias.unsqueeze(1)], 1), expected)


def test_without_a_proximal_term_a_singular_fit_is_said_to_diverge() -> None:
    """Constant inputs, of which no fit can tell the weights from the bias."""
    x, y = problem(dtype=F64)
    x[:, 1] = 2.0
    method = altmin.methods.create("bcd", net("bcd", dtype=F64), alpha=0.0, ridge=0.0)
    method.step(x, y)
    with pytest.raises(altmin.common.errors.Diverged):
        method.end_epoch()
