"""Full-batch training of a split network: whole iterations against brute force, passes in parts, samples by row."""

import copy
import itertools
from typing import Any

import pytest
import torch
from method_cases import net, problem
from splitting_reference import F64, Reference
from torch import Tensor, nn
from trainer_cases import equal

import altmin
from altmin.common.errors import Diverged
from altmin.training import fit

METHODS = ["admm", "bcd"]
EVERY = pytest.mark.parametrize("name", METHODS)


def created(name: str, model: nn.Module | None = None, **options: Any) -> Any:
    return altmin.methods.create(name, net(name, dtype=F64) if model is None else model, **options)


def run(method: Any, x: Tensor, y: Tensor, passes: int) -> Any:
    for _ in range(passes):
        method.step(x, y)
        method.end_epoch()
    return method


def weights(method: Any) -> list[Tensor]:
    return [p.detach().clone() for p in method.model.parameters()]


def close(a: list[Tensor], b: list[Tensor], tolerance: float = 1e-8) -> bool:
    return all(torch.allclose(p, q, rtol=tolerance, atol=tolerance) for p, q in zip(a, b, strict=True))


def net_of(activation: nn.Module) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), activation, nn.Linear(6, 5), activation, nn.Linear(5, 3)).to(F64)


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "admm": (
        "admm",
        {"gamma_prod": 0.3, "gamma_nonlin": 0.5, "shrink": 0.4, "warmup": 1, "ridge": 0.01, "start": 0.7},
        {
            **{"beta": [0.3 * 0.16, 0.3 * 0.4, 0.3], "gamma": [0.5 * 0.16, 0.5 * 0.4, 0.5], "alpha": [0.0] * 3},
            **{"ridge": 0.01, "proximal": 0.0, "start": 0.7, "warmup": 1, "loss": "cross-entropy"},
        },
    ),
    "bcd": (
        "bcd",
        {"rho": 1.5, "gamma": 0.8, "alpha": 0.6, "ridge": 0.02, "start": 0.7},
        {
            **{"beta": [0.75] * 3, "gamma": [0.4] * 3, "alpha": [0.3] * 3},
            **{"ridge": 0.02, "proximal": 0.3, "start": 0.7, "loss": "squared"},
        },
    ),
}


_, OPTIONS, PLAIN = CASES["bcd"]
CASES["bcd, cross-entropy"] = "bcd", {**OPTIONS, "loss": "cross-entropy"}, {**PLAIN, "loss": "cross-entropy"}


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.Hardsigmoid(), nn.Hardtanh()], ids=repr)
@pytest.mark.parametrize("case", CASES)
def test_three_iterations_are_those_of_brute_force(case: str, activation: nn.Module) -> None:
    """Every block on its own problem, from the output down, then the weights: the papers' formulas."""
    name, options, plain = CASES[case]
    x, y = problem(14, dtype=F64)
    model = net_of(activation)
    expected = Reference(model, x, y, name, plain)
    method = created(name, model, **options)
    for _ in range(3):
        values = expected.iterate()
        if name == "bcd" or expected.done == 1:  # the multiplier's own step raises the Lagrangian
            assert all(after <= before + 1e-9 for before, after in itertools.pairwise(values))
        run(method, x, y, 1)
        found = [torch.cat([m.weight, m.bias.unsqueeze(1)], 1) for m in model if isinstance(m, nn.Linear)]
        assert close(found, expected.W, 1e-5)
        kept = method.table.read(torch.arange(14))
        assert close([kept["z1"], kept["a2"], kept["z3"]], [expected.z[0], expected.a[2], expected.z[2]], 1e-5)
        assert torch.allclose(kept[method.extra], expected.extra, atol=1e-5)


@EVERY
@pytest.mark.parametrize("batch_size", [1, 7, 25])
def test_a_pass_in_parts_is_the_pass_as_a_whole(name: str, batch_size: int) -> None:
    data = problem(60, dtype=F64)
    whole = run(created(name), *data, 4)
    parts = created(name)
    fit(parts, data, epochs=4, batch_size=batch_size)
    assert close(weights(parts), weights(whole))


@EVERY
def test_samples_that_come_late_take_part_from_then_on(name: str) -> None:
    """The first layer's sums are then those of all samples, in whatever batch they came."""
    x, y = problem(60, dtype=F64)
    method = created(name)
    rows = torch.arange(60)
    method.step(x[:40], y[:40], rows[:40])
    method.end_epoch()
    for part in (torch.cat([rows[:10], rows[50:]]), rows[10:50]):
        method.step(x[part], y[part], part)
    ones = torch.cat([x, torch.ones(60, 1, dtype=F64)], 1)
    assert torch.allclose(method.sums[0].A, ones.mT @ ones)
    late, early = method.table.read(rows[40:]), method.table.read(rows[:40])
    a = torch.cat([early["a2"], late["a2"]])
    assert torch.allclose(method.sums[2].A[:-1, :-1], a.mT @ a)


@EVERY
def test_a_batch_out_of_order_is_refused_and_nothing_changes(name: str) -> None:
    x, y = problem(20, dtype=F64)
    method = run(created(name), x, y, 1)
    method.step(x[:5], y[:5], torch.arange(5))
    before = copy.deepcopy(method.state_dict()), weights(method)
    for rows in (None, torch.arange(4, 9)):
        with pytest.raises(ValueError):
            method.step(x[:5], y[:5], rows)
    with pytest.raises(ValueError):
        method.end_epoch()
    with pytest.raises(ValueError):
        method.step(x[5:], torch.full((15,), -100).index_fill(0, torch.tensor(0), 1), torch.arange(5, 20))
    assert equal((method.state_dict(), weights(method)), before)


@EVERY
def test_layers_without_bias_keep_to_it(name: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False)).to(F64)
    x, y = problem(50, dtype=F64)
    method = run(created(name, model, start=1.0), x, y, 1)
    kept = method.table.read(torch.arange(50))
    ridge = method.ridge * 50 + method.proximal / method.penalties.rho[1]
    assert len(list(model.parameters())) == 2
    if name == "admm":
        matrix = kept["a1"].mT @ kept["a1"] + ridge * torch.eye(8, dtype=F64)
        assert torch.allclose(model[2].weight @ matrix, kept["z2"].mT @ kept["a1"])


def test_without_a_proximal_term_a_singular_fit_is_said_to_diverge() -> None:
    """Constant inputs, of which no fit can tell the weights from the bias."""
    x, y = problem(dtype=F64)
    x[:, 1] = 2.0
    method = created("bcd", alpha=0.0, ridge=0.0)
    method.step(x, y)
    with pytest.raises(Diverged):
        method.end_epoch()
