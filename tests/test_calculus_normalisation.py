"""Layer and batch norm: running statistics, and what cannot be normalised."""

import copy

import pytest
import torch
from calculus_cases import NORMALISATION, close, contract, parameters
from torch import nn

from altmin.calculus import map_of

TestMaps = contract(NORMALISATION)


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
