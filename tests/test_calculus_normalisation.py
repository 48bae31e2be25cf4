"""Layer and batch norm: steps of any size, running statistics, and what cannot be normalised."""

import copy

import pytest
import torch
from calculus_cases import NORMALISATION, close, contract, number, parameters
from torch import nn
from torch.nn import functional as F

from altmin.calculus import map_of

TestMaps = contract(NORMALISATION)


@pytest.mark.parametrize("e", [1e-2, 1.0, 30.0])
def test_quotients_of_any_size_are_exact(e):
    """The change of 1/sqrt(var) is written without cancellation; it must still be the change."""
    torch.manual_seed(0)
    x, u = torch.randn(2, 4, 7, dtype=torch.float64)
    m, p = map_of(nn.LayerNorm(7)), [torch.ones(7, dtype=torch.float64), torch.zeros(7, dtype=torch.float64)]
    quotient = m.quotient(p, m.forward(p, x)[1], u, number(e))[0]
    close(quotient, (F.layer_norm(x, (7,)) - F.layer_norm(x - e * u, (7,))) / e)


@pytest.mark.parametrize("e", [1e-1, 1e-2, 1e-3, 1e-4])
def test_quotients_in_float32_have_no_cancellation_at_any_size(e):
    torch.manual_seed(0)
    x, u = torch.randn(2, 40, 7)
    m, p = map_of(nn.LayerNorm(7)), [torch.ones(7), torch.zeros(7)]
    quotient = m.quotient(p, m.forward(p, x)[1], u, torch.tensor(e))[0]
    exact = (F.layer_norm(x.double(), (7,)) - F.layer_norm(x.double() - e * u.double(), (7,))) / e
    close(quotient.double(), exact, 3e-6)


def test_a_step_that_takes_all_variance_away_leaves_the_bias():
    """x - e u is constant, its variance zero; rounding may find it below zero, and is magnified by 1/sqrt(eps)."""
    torch.manual_seed(0)
    x = 100 * torch.randn(50, 7)
    m, p = map_of(nn.LayerNorm(7)), [torch.ones(7), torch.zeros(7)]
    y, saved = m.forward(p, x)
    u = x - x.mean(1, keepdim=True)
    close(m.quotient(p, saved, u, torch.tensor(1.0))[0], y, 0.05)


@pytest.mark.parametrize("momentum", [0.1, 0.4, None])
@pytest.mark.parametrize("kind, shape", [(nn.BatchNorm1d, (6, 3)), (nn.BatchNorm2d, (6, 3, 2, 2))])
def test_committed_running_statistics_are_those_pytorch_keeps(momentum, kind, shape):
    torch.manual_seed(0)
    module = kind(3, momentum=momentum).double()
    pytorch, m = copy.deepcopy(module), map_of(module)
    for _ in range(3):
        x = 2 * torch.randn(*shape, dtype=torch.float64) + 1
        pytorch(x)
        m.commit(m.kept(m.forward(parameters(module), x)[1]))
    for key, value in pytorch.state_dict().items():
        close(module.state_dict()[key], value)


@pytest.mark.parametrize("module", [nn.BatchNorm1d(3).eval(), nn.BatchNorm1d(3, track_running_stats=False)])
def test_a_batch_norm_without_running_statistics_to_update_keeps_nothing(module):
    m = map_of(module)
    assert m.kept(m.forward(parameters(module), torch.randn(5, 3))[1]) is None


def test_statistics_that_overflow_are_seen_and_a_mean_of_zero_is_none():
    m = map_of(nn.BatchNorm1d(1))
    for scale, sound in ((1.0, True), (1e30, False)):
        kept = m.kept(m.forward(parameters(m.module), scale * torch.tensor([[-1.0], [1.0]]))[1])
        assert all(bool(t.isfinite().all()) for t in m.checked(kept)) == sound


def test_a_single_value_per_channel_is_refused_in_training_only():
    m = map_of(nn.BatchNorm1d(3))
    p, x = parameters(m.module), torch.randn(1, 3)
    with pytest.raises(ValueError, match=r"needs more than one value per channel.*model\.eval\(\)"):
        m.forward(p, x)
    m.module.eval()
    close(m.forward(p, x)[0], m.module(x).detach(), 1e-6)
