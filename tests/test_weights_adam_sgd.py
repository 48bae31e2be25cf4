"""The optimizers as functions against torch's own."""

from typing import Any

import pytest
import torch
from torch import Tensor

from altmin.core.weights.adam_sgd import coefficients, stepped

STEPS = 6


def entries(dtype: torch.dtype = torch.float64) -> tuple[Tensor, list[Tensor]]:
    """Weights, and a gradient for each step."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(STEPS + 1, 5, generator=generator, dtype=dtype)
    return draws[0], list(draws[1:])


def by_torch(optimizer: Any, **options: Any) -> Tensor:
    start, grads = entries()
    p = start.clone().requires_grad_()
    made = optimizer([p], **options)
    for grad in grads:
        p.grad = grad.clone()
        made.step()
    return p.detach()


def zeros(p: Tensor, *moments: str) -> dict[str, Tensor]:
    return {"weights": p, **{name: torch.zeros_like(p) for name in moments}}


def rates(step: int, **options: float) -> dict[str, Tensor]:
    given = {name: torch.tensor(value, dtype=torch.float64) for name, value in options.items()}
    return coefficients(given, torch.tensor(float(step), dtype=torch.float64), torch.float64)


@pytest.mark.parametrize("decay", [{}, {"weight_decay": 0.3}])
@pytest.mark.parametrize("betas", [{"beta1": 0.8, "beta2": 0.95}, {"beta2": 0.95}, {}])
@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_goes_where_torchs_adam_goes(decoupled: bool, betas: dict[str, float], decay: dict[str, float]) -> None:
    p, grads = entries()
    row = zeros(p, "exp_avg", "exp_avg_sq")
    for k, g in enumerate(grads, 1):
        row = stepped("adamw" if decoupled else "adam", row, g, rates(k, lr=0.1, eps=1e-3, **betas, **decay))
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    given = {
        "betas": (betas.get("beta1", 0.0), betas.get("beta2", 0.0)),
        "weight_decay": decay.get("weight_decay", 0.0),
    }
    torch.testing.assert_close(row["weights"], by_torch(kind, lr=0.1, eps=1e-3, **given), rtol=1e-12, atol=0)


@pytest.mark.parametrize("momentum", [{}, {"momentum": 0.9}])
@pytest.mark.parametrize("decay", [{}, {"weight_decay": 0.3}])
def test_sgd_goes_where_torchs_sgd_goes(momentum: dict[str, float], decay: dict[str, float]) -> None:
    p, grads = entries()
    row = zeros(p, "momentum_buffer")
    for k, g in enumerate(grads, 1):
        row = stepped("sgd", row, g, rates(k, lr=0.1, **momentum, **decay))
    torch.testing.assert_close(
        row["weights"], by_torch(torch.optim.SGD, lr=0.1, **momentum, **decay), rtol=1e-12, atol=0
    )


def test_coefficients_have_the_digits_that_the_weights_type_has() -> None:
    """1 - 0.999, computed in single precision, would have lost four digits."""
    options = {"lr": 0.003, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "l1": 0.7}
    given = {name: torch.tensor([value, value], dtype=torch.float64) for name, value in options.items()}
    found = coefficients(given, torch.tensor([1.0, 5.0], dtype=torch.float64), torch.float32)
    for name, expected in {
        "rate": [0.003 * 0.001**0.5 / 0.1, 0.003 * (1 - 0.999**5) ** 0.5 / (1 - 0.9**5)],
        "eps": [1e-8 * 0.001**0.5, 1e-8 * (1 - 0.999**5) ** 0.5],
        "new1": [0.1, 0.1],
        "new2": [0.001, 0.001],
        "threshold": [0.0021, 0.0021],
    }.items():
        assert found[name].dtype == torch.float32
        assert found[name].squeeze(1).tolist() == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
def test_options_may_be_one_for_each_row(kind: str) -> None:
    """Rows of a matrix with their own options are those of separate calls, and keep the weights' type."""
    names = ("lr", "beta1", "beta2", "eps", "weight_decay", "momentum")
    numbers = [[0.1, 0.8, 0.95, 1e-3, 0.2, 0.9], [0.2, 0.9, 0.999, 1e-8, 0.0, 0.0], [0.05, 0.5, 0.9, 1e-2, 0.7, 0.5]]
    columns = dict(zip(names, torch.tensor(numbers, dtype=torch.float64).T, strict=True))
    steps = torch.tensor([1.0, 4.0, 9.0], dtype=torch.float64)
    _, grads = entries(torch.float32)
    g, m, v = torch.stack(grads[:3]), torch.stack(grads[3:6]), torch.stack(grads[1:4]).square()
    rows = {"weights": 3 * v, "exp_avg": m, "exp_avg_sq": v, "momentum_buffer": m}

    found = stepped(kind, rows, g, coefficients(columns, steps, torch.float32))
    for i in range(3):
        own = {name: column[i] for name, column in columns.items()}
        row = {name: value[i] for name, value in rows.items()}
        single = stepped(kind, row, g[i], coefficients(own, steps[i], torch.float32))
        for name, expected in single.items():
            torch.testing.assert_close(found[name][i], expected, rtol=1e-6, atol=1e-7)
