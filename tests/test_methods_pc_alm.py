"""PC-ALM against its augmented Lagrangian, and against backprop, where its inference ends."""

import copy

import pytest
import torch
from test_methods_predictive_coding import case, codes, cosine, pieces, settled
from torch import Tensor, nn

NETS = pytest.mark.parametrize("name", ["tanh", "equal layers", "residual", "two runs", "batch norm"])


def multipliers(inference) -> list[Tensor]:
    return [m for s in inference.groups for m in (s.multipliers if s.several else [s.multipliers])]


def forward(model: nn.Sequential, x: Tensor) -> list[Tensor]:
    """What every block gives, with its graph."""
    values = [x]
    for modules in pieces(model):
        values.append(nn.Sequential(*modules)(values[-1]))
    return values[1:]


def lagrangian(model: nn.Sequential, x: Tensor, y: Tensor, z: list[Tensor], lam: list[Tensor], rho: float) -> Tensor:
    """n loss + sum <lambda_l, f_l(z_{l-1}) - z_l> + rho/2 |f_l(z_{l-1}) - z_l|^2."""
    blocks = [nn.Sequential(*modules) for modules in pieces(model)]
    excess = [f(below) - code for f, below, code in zip(blocks, [x, *z], z, strict=False)]
    total = nn.functional.cross_entropy(blocks[-1]([x, *z][-1]), y, reduction="sum")
    return total + sum((m * r).sum() + rho / 2 * r.square().sum() for m, r in zip(lam, excess, strict=True))


@NETS
@pytest.mark.parametrize("rho", [1.0, 2.5])
def test_a_step_adds_errors_to_multipliers_and_then_descends_the_lagrangian(name: str, rho: float) -> None:
    model, x, y = case(name)
    inference = settled(model, x, y, 5, 0.05, rho=rho, dual=rho)
    z, lam = codes(inference), [m.clone() for m in multipliers(inference)]
    reference = copy.deepcopy(model)
    blocks = [nn.Sequential(*modules) for modules in pieces(reference)]
    with torch.no_grad():
        inference.step(0.05)
        lam = [m + rho * (f(below) - code) for m, f, below, code in zip(lam, blocks, [x, *z], z, strict=False)]
    leaves = [code.clone().requires_grad_() for code in z]
    slopes = torch.autograd.grad(lagrangian(reference, x, y, leaves, lam, rho), leaves)
    torch.testing.assert_close([*multipliers(inference)], [*lam], rtol=1e-10, atol=1e-12)
    for a, code, slope in zip(codes(inference), z, slopes, strict=True):
        torch.testing.assert_close(a, code - 0.05 * slope, rtol=1e-10, atol=1e-12)


@NETS
def test_weights_get_the_gradient_of_the_lagrangian(name: str) -> None:
    model, x, y = case(name)
    inference = settled(model, x, y, 7, 0.05, rho=1.5, dual=1.5)
    reference = copy.deepcopy(model)
    value = lagrangian(reference, x, y, codes(inference), multipliers(inference), 1.5)
    wanted = torch.autograd.grad(value, list(reference.parameters()))
    with torch.no_grad():
        found = [grad for each in inference.grads() for grad in each]
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b / len(x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name, rho, steps", [("tanh", 4, 2000), ("batch norm", 1, 400)])
def test_inference_ends_at_the_forward_pass_with_backprops_gradients(name: str, rho: float, steps: int) -> None:
    model, x, y = case(name)
    reference = copy.deepcopy(model)
    inference = settled(model, x, y, steps, 0.1 / rho, rho=rho, dual=rho)
    values = forward(reference, x)
    loss = nn.functional.cross_entropy(values[-1], y)
    *adjoints, _ = torch.autograd.grad(loss, values, retain_graph=True)
    for m, adjoint in zip(multipliers(inference), adjoints, strict=True):
        assert cosine([m], [adjoint]) > 0.9999
        assert (m / len(x) - adjoint).norm() < 0.01 * adjoint.norm()
    for code, value in zip(codes(inference), values, strict=False):
        torch.testing.assert_close(code, value.detach(), rtol=0, atol=1e-3)
    wanted = torch.autograd.grad(loss, list(reference.parameters()))
    with torch.no_grad():
        assert cosine([grad for each in inference.grads() for grad in each], wanted) > 0.9999
