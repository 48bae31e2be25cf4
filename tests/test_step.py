"""One mini-batch as functions: what the moved codes cost, when a step is refused, and that it changes nothing."""

import pytest
import torch
from codes_cases import NETS, batch, net
from conftest import outcome_of
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from altmin import GradientCodes
from altmin.core.step import soft_threshold


@pytest.mark.parametrize("name", NETS)
def test_moving_the_codes_changes_neither_the_model_nor_the_batch(name):
    model, (x, y) = net(name), batch()
    model.train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    first_x, first_y = x.clone(), y.clone()
    outcome_of(model, GradientCodes(), x, y, 0.5)
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]), key
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(x, first_x)
    assert torch.equal(y, first_y)


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_a_loss_that_overflows_is_refused_even_where_the_codes_would_bring_it_back(share):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 30), nn.Linear(30, 3)), torch.rand(100, 4)
    nn.init.constant_(model[1].weight, 0.1)
    far = torch.full((100, 3), 1e19)  # in float32 its square is finite, the sum of 300 of them is not
    step = outcome_of(model, GradientCodes(share=share), x, far, 1e-9, nn.MSELoss())
    assert step.loss.isinf()
    assert not bool(step.is_finite)


@given(p=st.floats(-5, 5), threshold=st.floats(0, 3))
def test_soft_threshold_minimises_half_the_squared_distance_plus_the_l1_term(p, threshold):
    z = soft_threshold(torch.tensor(p, dtype=torch.float64), threshold).item()
    # the subdifferential of |z - p|^2 / 2 + threshold |z| at its minimum holds 0
    if z:
        assert z - p + threshold * (1 if z > 0 else -1) == pytest.approx(0, abs=1e-12)
    else:
        assert abs(p) <= threshold + 1e-12
