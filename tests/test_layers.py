"""Activations without derivatives: their values, and what a backward pass gets."""

import math

import pytest
import torch
from torch import nn

import altmin
from altmin.layers import straight_through

F64 = torch.float64
DISCRETE = [altmin.Sign(), *(altmin.Staircase(n) for n in (2, 3, 4, 5))]
EACH = pytest.mark.parametrize("module", DISCRETE, ids=str)


def levels(module: nn.Module) -> list[float]:
    n = 2 if isinstance(module, altmin.Sign) else module.levels
    return [-1 + 2 * k / (n - 1) for k in range(n)]


def interval(module: nn.Module, v: float) -> tuple[float, float]:
    """Where the activation is v: from half-way to the neighbour below to half-way to the one above."""
    values = levels(module)
    k = min(range(len(values)), key=lambda i: abs(values[i] - v))
    low = -math.inf if k == 0 else (values[k - 1] + values[k]) / 2
    high = math.inf if k == len(values) - 1 else (values[k] + values[k + 1]) / 2
    return low, high


@EACH
def test_an_activation_is_the_nearest_level_and_at_a_threshold_the_upper_one(module):
    x = torch.linspace(-2, 2, 161, dtype=F64)  # steps of 1/40: the thresholds of 2, 3 and 5 levels are among them
    for value, y in zip(x.tolist(), module(x).tolist(), strict=True):
        low, high = interval(module, y)
        assert y == pytest.approx(min(levels(module), key=lambda v: abs(v - y)), abs=1e-12)
        assert low - 1e-12 <= value < high + 1e-12
    exact = {2: {0.0: 1.0}, 3: {-0.5: 0.0, 0.5: 1.0}, 5: {-0.25: 0.0, 0.75: 1.0}}.get(len(levels(module)), {})
    assert all(module(torch.tensor([at], dtype=F64)).item() == y for at, y in exact.items())


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_signs_of_the_smallest_numbers_are_right(dtype):
    tiny = torch.finfo(dtype).smallest_normal
    x = torch.tensor([-tiny, -0.0, 0.0, tiny, -math.inf, math.inf], dtype=dtype)
    assert altmin.Sign()(x).tolist() == [-1, 1, 1, 1, -1, 1]
    assert torch.equal(altmin.Staircase(2)(x), altmin.Sign()(x))
    assert altmin.Sign()(x).dtype == altmin.Staircase(4)(x).dtype == dtype


@EACH
def test_what_is_not_a_number_stays_so(module):
    assert module(torch.tensor([math.nan, 1.0])).isnan().tolist() == [True, False]


@EACH
def test_a_backward_pass_is_refused_in_one_sentence_and_a_forward_pass_is_not(module):
    x = torch.randn(3, 4, requires_grad=True)
    y = module(2 * x)
    torch.testing.assert_close(y.detach(), module((2 * x).detach()))
    with pytest.raises(TypeError, match=r"has no derivative.*DiscreteCodes\(\).*StraightThrough\("):
        y.sum().backward()


@EACH
def test_a_straight_through_copy_shares_parameters_and_leaves_the_model_as_it_is(module):
    x = torch.tensor([-1.5, -1.0, -0.2, 0.7, 1.0, 1.01], dtype=F64, requires_grad=True)
    v = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], dtype=F64)
    model = nn.Sequential(nn.BatchNorm1d(1).double(), module)
    twin = straight_through(model)
    assert all(p is q for p, q in zip(twin.parameters(), model.parameters(), strict=True))
    assert all(p is q for p, q in zip(twin.buffers(), model.buffers(), strict=True))
    y = straight_through(module)(x)
    assert torch.equal(y.detach(), module(x.detach()))
    (y * v).sum().backward()
    assert x.grad.tolist() == [0, 2, 3, 4, 5, 0]
    with pytest.raises(TypeError, match="has no derivative"):
        module(x).sum().backward()


@pytest.mark.parametrize("levels", [1, 0, -3, 2.5, True, "4"])
def test_a_staircase_of_no_steps_is_refused(levels):
    with pytest.raises(ValueError, match="at least 2, given"):
        altmin.Staircase(levels)


@pytest.mark.parametrize("module", [nn.Linear(2, 2), altmin.Sign, None])
def test_straight_through_wraps_activations_only(module):
    with pytest.raises(TypeError, match="wraps an activation without parameters"):
        altmin.StraightThrough(module)
