"""The audit sees what a step hands from block to block, and would see a graph there."""

import copy

import torch
from torch import nn

import altmin
from altmin.calculus import CLOSED_FORMS, ReLU


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(6, 4), torch.randint(3, (6,))


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 5), nn.Softmax(1), nn.Linear(5, 3))


def test_no_graph_crosses_a_block_and_the_model_is_left_alone():
    am = altmin.AltMin(net())
    before = copy.deepcopy(am.model.state_dict())
    found = altmin.audit(am, *batch())
    assert found.clean
    assert "no autograd graph crosses a block" in str(found)
    assert all(torch.equal(before[name], value) for name, value in am.model.state_dict().items())
    assert am.penalty.value == am.penalty.start


def test_modules_and_losses_with_a_graph_of_their_own_are_named():
    am = altmin.AltMin(net(), loss=lambda o, y: (o.logsumexp(1) - o.gather(1, y[:, None])[:, 0]).mean())
    found = altmin.audit(am, *batch())
    assert [finding.local for finding in found.findings] == [[], [], ["Softmax"], ["the given function"]]


def test_a_map_that_lets_a_graph_out_is_found(monkeypatch):
    class Leaky(ReLU):
        def forward(self, p, x):
            with torch.enable_grad():
                y = x.detach().requires_grad_().clamp_min(0)
            return y, (x, y)

    monkeypatch.setitem(CLOSED_FORMS, nn.ReLU, Leaky)
    found = altmin.audit(altmin.AltMin(net()), *batch())
    assert not found.clean
    assert [finding.escaped > 0 for finding in found.findings] == [False, True, False, False]
    assert "AN AUTOGRAD GRAPH CROSSES A BLOCK" in str(found)
