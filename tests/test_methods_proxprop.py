"""ProxProp against its penalty energy: explicit steps by autograd, implicit ones by least squares."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from method_cases import problem
from torch import Tensor, nn

from altmin.methods import create
from altmin.methods.rivals.proxprop import ACTIVATIONS

F64 = torch.float64


def net(activation: Callable[[], nn.Module] = nn.Tanh, bias: bool = True, seed: int = 1) -> nn.Sequential:
    torch.manual_seed(seed)
    sizes = [(4, 7), (7, 5), (5, 3)]
    first, second, last = (nn.Linear(m, n, bias=bias) for m, n in sizes)
    return nn.Sequential(nn.Flatten(), first, activation(), second, activation(), last).double()


def with_ones(a: Tensor, bias: bool) -> Tensor:
    return torch.cat([a, torch.ones(len(a), int(bias), dtype=a.dtype)], 1)


def gradients(model: nn.Module, x: Tensor, y: Tensor, loss: Any = nn.functional.cross_entropy) -> list[Tensor]:
    return list(torch.autograd.grad(loss(model(x), y), list(model.parameters())))


def by_the_energy(model: nn.Sequential, x: Tensor, y: Tensor, loss: Any, tau: float, tau_theta: float) -> list[Tensor]:
    """The parameters after one step, from E(theta, a, z) with gamma = rho = 1 / tau and nothing else: explicit steps by
    autograd of E, implicit ones as the least-squares problem that they are."""
    linears = [m for m in model if isinstance(m, nn.Linear)]
    s = model[2]
    a, z = [x], []
    for linear in linears[:-1]:
        z.append(linear(a[-1]).detach())
        a.append(s(z[-1]).detach())
    before = list(a)

    def energy() -> Tensor:
        total = loss(linears[-1](a[-1]), y)
        for l in range(len(z)):
            total = total + ((s(z[l]) - a[l + 1]) ** 2).sum() / (2 * tau)
            total = total + ((linears[l](a[l]) - z[l]) ** 2).sum() / (2 * tau)
        return total

    def explicit(variables: list[Tensor], i: int) -> None:
        v = variables[i] = variables[i].detach().requires_grad_()
        (slope,) = torch.autograd.grad(energy(), v)
        variables[i] = (v - tau * slope).detach()

    last = list(linears[-1].parameters())
    new = [[(p - tau * g).detach() for p, g in zip(last, torch.autograd.grad(energy(), last), strict=True)]]
    for l in reversed(range(len(z))):
        explicit(a, l + 1)
        explicit(z, l)
        theta = torch.cat([p.detach().reshape(p.shape[0], -1) for p in linears[l].parameters()], 1)
        A = with_ones(before[l], linears[l].bias is not None)
        rows = torch.cat([A, torch.eye(A.shape[1], dtype=F64) / tau_theta**0.5])
        targets = torch.cat([z[l], theta.mT / tau_theta**0.5])
        found = torch.linalg.lstsq(rows, targets).solution.mT
        inputs = linears[l].in_features
        new.insert(0, [found[:, :inputs], *([found[:, inputs]] if found.shape[1] > inputs else [])])
    return [p for layer in new for p in layer]


def powers(output: Tensor, y: Tensor) -> Tensor:
    return (output - y).abs().pow(1.5).mean()


@pytest.mark.parametrize(
    "samples, activation, loss",
    [
        *((3, nn.Tanh, None), (6, nn.ReLU, None), (40, nn.Sigmoid, None), (6, nn.GELU, None)),
        *((9, nn.Tanh, nn.MSELoss()), (9, nn.Tanh, powers)),
    ],
)
@pytest.mark.parametrize("tau, tau_theta, bias", [(0.3, 0.05, True), (0.02, 5.0, True), (2.0, 1.0, False)])
def test_a_step_descends_the_penalty_energy_one_variable_after_the_other(
    samples: int, activation: type[nn.Module], loss: Any, tau: float, tau_theta: float, bias: bool
) -> None:
    x, y = problem(samples, dtype=F64)
    if loss is not None:
        y = torch.randn(samples, 3, dtype=F64, generator=torch.Generator().manual_seed(4))
    model = net(activation, bias)
    expected = by_the_energy(model, x, y, loss or nn.functional.cross_entropy, tau, tau_theta)
    options = {} if loss is None else {"loss": loss}
    create("proxprop", model, lr=tau, tau_theta=tau_theta, optimizer="sgd", momentum=0, **options).step(x, y)
    for p, q in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.detach(), q, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "options, make",
    [
        ({"lr": 0.01, "weight_decay": 0.1}, lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1)),
        (
            {"lr": 0.2, "optimizer": "sgd", "momentum": 0.8, "weight_decay": 0.1},
            lambda p: torch.optim.SGD(p, 0.2, 0.8, weight_decay=0.1, nesterov=True),
        ),
    ],
)
def test_the_optimizer_takes_the_directions_for_gradients(options: dict[str, Any], make: Any) -> None:
    x, y = problem(20, dtype=F64)
    model, other = net(), net()
    method, optimizer = create("proxprop", model, **options), make(other.parameters())
    for _ in range(3):
        before = create("proxprop", copy.deepcopy(other), lr=0.0)
        before.step(x, y)
        for p, q in zip(other.parameters(), before.model.parameters(), strict=True):
            p.grad = q.grad
        optimizer.step()
        method.step(x, y)
    torch.testing.assert_close([*model.parameters()], [*other.parameters()], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_elementwise_activation_is_differentiated_as_autograd_does(activation: type[nn.Module]) -> None:
    x, y = problem(20, dtype=F64)
    model = net((lambda: nn.Threshold(0.1, 0.3)) if activation is nn.Threshold else activation)
    expected = gradients(model, x, y)
    create("proxprop", model, tau_theta=1e-9, lr=0.0).step(x, y)
    for l, (p, g) in enumerate(zip(model.parameters(), expected, strict=True)):
        torch.testing.assert_close(p.grad / (1e-9 if l < 4 else 1.0), g, rtol=1e-4, atol=1e-6)
