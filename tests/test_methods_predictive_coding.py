"""Predictive coding against an energy written down from its formula, with autograd for its derivatives, in float64."""

import copy
from collections.abc import Sequence

import pytest
import torch
from method_cases import problem
from torch import Tensor, nn

import altmin
from altmin.core.cutting import split
from altmin.core.losses import adapt
from altmin.layers import Sign
from altmin.methods import create
from altmin.methods.rivals.predictive_coding import Inference, groups_of
from altmin.models import mlp, residual_mlp

NETS = {
    "tanh": lambda: mlp(4, (5, 6), 3, nn.Tanh),
    "equal layers": lambda: mlp(4, (5, 5, 5, 5), 3, nn.Tanh),
    "relu": lambda: mlp(4, (6, 6, 6), 3),
    "residual": lambda: residual_mlp(6, 4, 4, 3),
    "two runs": lambda: nn.Sequential(*mlp(4, (5, 5, 5), 5, nn.Sigmoid)[1:], *mlp(5, (7, 7, 7), 3)[1:]),
    "one layer": lambda: nn.Sequential(nn.Linear(4, 3)),
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)),
    "a module of one's own": lambda: nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.PReLU(5), nn.Linear(5, 3)),
}
EVERY = pytest.mark.parametrize("name", NETS)


def case(name: str, seed: int = 0) -> tuple[nn.Sequential, Tensor, Tensor]:
    torch.manual_seed(seed)
    return NETS[name]().double(), *problem(7, dtype=torch.float64)


def started(model: nn.Module, x: Tensor, y: Tensor, **options: float) -> Inference:
    chain = split(model)
    with torch.no_grad():
        return Inference(chain, chain.parameters(), adapt(nn.CrossEntropyLoss()), x, y, **options)


def settled(model: nn.Module, x: Tensor, y: Tensor, steps: int, rate: float, **options: float) -> Inference:
    inference = started(model, x, y, **options)
    with torch.no_grad():
        for _ in range(steps):
            inference.step(rate)
    return inference


def codes(inference: Inference) -> list[Tensor]:
    """The codes themselves, one of each hidden block."""
    offsets = [u for s in inference.groups for u in (s.u if s.several else [s.u])]
    return [value - u for value, u in zip(inference.values[1:-1], offsets, strict=True)]


def pieces(model: nn.Sequential) -> list[list[nn.Module]]:
    """The modules of every block, cut after each module with weights and the batch norm that follows it."""
    found: list[list[nn.Module]] = [[]]
    modules = list(model)
    for i, module in enumerate(modules):
        found[-1].append(module)
        last = not any(list(m.parameters()) for m in modules[i + 1 :])
        norm = i + 1 < len(modules) and isinstance(modules[i + 1], nn.BatchNorm1d)
        if list(module.parameters()) and not last and not norm:
            found.append([])
    return found


def energy(model: nn.Sequential, x: Tensor, y: Tensor, z: Sequence[Tensor]) -> Tensor:
    """n loss(f_L(z_{L-1}), y) + 1/2 sum |z_l - f_l(z_{l-1})|^2, module by module."""
    total, below = torch.zeros((), dtype=x.dtype), x
    for modules, code in zip(pieces(model), [*z, None], strict=True):
        for module in modules:
            below = module(below)
        if code is None:
            return total + nn.functional.cross_entropy(below, y, reduction="sum")
        total = total + (code - below).square().sum() / 2
        below = code
    return total


def by_gradient_descent(model: nn.Sequential, x: Tensor, y: Tensor, steps: int, rate: float) -> list[Tensor]:
    z, below = [], x
    for modules in pieces(model)[:-1]:
        for module in modules:
            below = module(below)
        z.append(below.detach())
    for _ in range(steps):
        leaves = [code.requires_grad_() for code in z]
        slopes = torch.autograd.grad(energy(model, x, y, leaves), leaves) if leaves else []
        z = [(code - rate * slope).detach() for code, slope in zip(leaves, slopes, strict=True)]
    return z


def cosine(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    u, v = (torch.cat([t.flatten() for t in each]) for each in (a, b))
    return float(u @ v / (u.norm() * v.norm()))


@EVERY
def test_codes_follow_the_gradient_of_the_energy(name: str) -> None:
    model, x, y = case(name)
    wanted = by_gradient_descent(copy.deepcopy(model), x, y, 9, 0.07)
    found = codes(settled(model, x, y, 9, 0.07))
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    assert all(not torch.equal(a, b) for a, b in zip(found, codes(started(model, x, y)), strict=True))


@EVERY
def test_weights_get_the_gradient_of_the_energy_at_these_codes(name: str) -> None:
    model, x, y = case(name)
    inference = settled(model, x, y, 6, 0.1)
    wanted = torch.autograd.grad(energy(copied := copy.deepcopy(model), x, y, codes(inference)), copied.parameters())
    with torch.no_grad():
        found = [grad for each in inference.grads() for grad in each]
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b / len(x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name, runs", [("equal layers", [(0, 0), (1, 3)]), ("residual", [(0, 0), (1, 4)])])
@pytest.mark.parametrize("dual", [0.0, 1.0])
def test_equal_blocks_together_give_what_each_gives_by_itself(name, runs, dual, monkeypatch) -> None:
    model, x, y = case(name)
    assert groups_of(split(model)) == runs
    together = settled(model, x, y, 12, 0.1, dual=dual)
    monkeypatch.setattr("altmin.methods.rivals.predictive_coding.ALIKE", ())
    assert groups_of(split(model)) == [(l, l) for l in range(runs[-1][-1] + 1)]
    alone = settled(model, x, y, 12, 0.1, dual=dual)
    with torch.no_grad():
        pairs = [*zip(codes(together), codes(alone), strict=True)]
        pairs += [
            pair for each in zip(together.grads(), alone.grads(), strict=True) for pair in zip(*each, strict=True)
        ]
    for a, b in pairs:
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_blocks_with_other_options_or_random_numbers_are_not_taken_together() -> None:
    elu = nn.Sequential(nn.Linear(4, 4), nn.ELU(), nn.Linear(4, 4), nn.ELU(0.5), nn.Linear(4, 4), nn.Linear(4, 2))
    assert groups_of(split(elu)) == [(0, 0), (1, 1), (2, 2)]
    dropout = nn.Sequential(nn.Linear(4, 4), *[m for _ in range(3) for m in (nn.Dropout(0.5), nn.Linear(4, 4))])
    assert groups_of(split(dropout)) == [(0, 0), (1, 1), (2, 2)]


def test_errors_far_below_the_rounding_of_codes_are_kept_in_float32() -> None:
    """The first of 32 blocks sees errors of 1e-9 of the last one's after 64 steps, and codes have seven digits."""
    torch.manual_seed(0)
    model, (x, y) = residual_mlp(16, 32, 4, 3), problem(20)
    exact = copy.deepcopy(model).double()
    with torch.no_grad():
        found = settled(model, x, y, 64, 0.25).grads()[0][0]
        wanted = settled(exact, x.double(), y, 64, 0.25).grads()[0][0]
    assert 0 < wanted.norm() < 1e-7
    assert (found - wanted).norm() < 1e-3 * wanted.norm()


def test_a_step_is_one_of_adam_along_these_gradients() -> None:
    model, x, y = case("residual")
    other = copy.deepcopy(model)
    inference = settled(other, x, y, 5, 0.2)
    optimizer = torch.optim.Adam(other.parameters(), 0.01, weight_decay=0.1)
    with torch.no_grad():
        for p, grad in zip(other.parameters(), [g for each in inference.grads() for g in each], strict=True):
            p.grad = grad
    optimizer.step()
    method = create("predictive-coding", model, lr=0.01, inference_steps=5, inference_rate=0.2, weight_decay=0.1)
    method.step(x, y)
    torch.testing.assert_close([*model.parameters()], [*other.parameters()], rtol=1e-9, atol=1e-12)


def test_batch_norm_keeps_the_statistics_of_the_forward_pass_and_dropout_one_mask() -> None:
    model, x, y = case("batch norm")
    other = copy.deepcopy(model)
    other(x)
    create("predictive-coding", model).step(x, y)
    torch.testing.assert_close(model[1].running_mean, other[1].running_mean)
    assert model[1].num_batches_tracked == 1
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 3)).double()
    inference = settled(net, x, y, 3, 0.1)
    mask = inference.states[-1].prelude[0]
    with torch.no_grad():
        grad = inference.grads()[-1][0]
    assert ((grad.abs().sum(0) == 0) == (mask == 0).all(0)).all()
    assert torch.equal(inference.evaluate(1.0)[2][-1].prelude[0], mask)


@pytest.mark.parametrize(
    "model", [lambda: mlp(4, (5,), 3, Sign), lambda: altmin.models.elman(3, 4), lambda: nn.Bilinear(2, 2, 2)]
)
@pytest.mark.parametrize("name", ["predictive-coding", "pc-alm"])
def test_a_model_without_derivatives_or_codes_is_refused(name, model) -> None:
    with pytest.raises((TypeError, ValueError)):
        create(name, model())
