"""The audit sees what a step hands from block to block, and would see a graph or a derivative there."""

import copy
import dataclasses
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import altmin
from altmin.calculus import CLOSED_FORMS, AnyModule, Discrete, ReLU
from altmin.calculus.context import LOCAL


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
        def forward(self, p, x, context=LOCAL):
            with torch.enable_grad():
                y = x.detach().requires_grad_().clamp_min(0)
            return y, (x, y)

    monkeypatch.setitem(CLOSED_FORMS, nn.ReLU, Leaky)
    found = altmin.audit(altmin.AltMin(net()), *batch())
    assert not found.clean
    assert [finding.escaped > 0 for finding in found.findings] == [False, True, False, False]
    assert "AN AUTOGRAD GRAPH CROSSES A BLOCK" in str(found)


class Attached(AnyModule):
    """Returns its output with the graph."""

    def forward(self, p, x, context=LOCAL):
        _, saved = super().forward(p, x, context)
        return saved.by.graph[2], saved


class Beyond(AnyModule):
    """Keeps a graph that begins before its own input."""

    def forward(self, p, x, context=LOCAL):
        y, saved = super().forward(p, x, context)
        with torch.enable_grad():
            x = 1 * x.detach().requires_grad_()
            graph = [x], [], self._call(p, [x], context, saved.by.start)[0]
        return y, saved._replace(by=dataclasses.replace(saved.by, graph=graph))


@pytest.mark.parametrize("leaky", [Attached, Beyond])
def test_a_module_whose_own_graph_reaches_beyond_it_is_found(monkeypatch, leaky):
    monkeypatch.setitem(CLOSED_FORMS, nn.Softmax, leaky)
    found = altmin.audit(altmin.AltMin(net()), *batch())
    assert not found.clean
    assert [finding.escaped > 0 for finding in found.findings] == [False, False, True, False]


def signs() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), altmin.Sign(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3))


def test_the_audit_tells_a_search_from_an_estimate():
    searched = altmin.audit(altmin.AltMin(signs(), codes="discrete"), *batch()).findings[1]
    estimated = altmin.audit(altmin.AltMin(signs(), codes="straight-through"), *batch()).findings[1]
    assert (searched.discrete, searched.estimates, searched.derivatives) == (["Sign"], 0, 0)
    assert "no derivative of Sign exists and none was used" in str(searched)
    assert (estimated.discrete, estimated.estimates, estimated.derivatives) == (["Sign"], 2, 0)
    assert "a straight-through estimate stood in for the derivative of Sign 2 times" in str(estimated)


def test_the_audit_would_notice_a_derivative(monkeypatch):
    class WithDerivative(Discrete):
        def vjp(self, p, saved, v):
            return v

        jvp = vjp

    class Unaware(altmin.GradientCodes):
        """A solver that takes the derivative it should not."""

    monkeypatch.setitem(CLOSED_FORMS, altmin.Sign, WithDerivative)
    found = altmin.audit(altmin.AltMin(signs(), codes=Unaware()), *batch()).findings[1]
    assert found.derivatives > 0
    assert "A DERIVATIVE OF Sign WAS USED" in str(found)


@pytest.mark.parametrize(
    ("look", "seen"),
    [
        (altmin.audit, lambda found: [finding.local for finding in found.findings]),
        (altmin.explain, lambda found: [(row.modules, row.names, row.parameters) for row in found.rows]),
    ],
)
def test_a_model_or_a_trainer_is_looked_at_and_nothing_else(look, seen):
    x, y = batch()
    model = net()
    am = altmin.AltMin(model)
    before = copy.deepcopy(am.state_dict())
    assert seen(look(model, x, y, "am-adam", share=0.2)) == seen(look(am, x, y))
    assert "Softmax" in str(look(am, x, y))
    assert am.state_dict()["penalty"] == before["penalty"]
    refused = f"{look.__name__} takes a method and options for a model, and a trainer has its own; leave out"
    with pytest.raises(ValueError, match=f"{refused} share"):
        look(am, x, y, share=0.2)
    with pytest.raises(ValueError, match=f"{refused} method"):
        look(am, x, y, "am-mem")
    with pytest.raises(ValueError, match=f"{look.__name__} is about codes, and 'adam' moves none in a step"):
        look(model, x, y, "adam")
    with pytest.raises(TypeError, match=f"{look.__name__} takes a model or an altmin.AltMin, given namespace"):
        look(SimpleNamespace(model=model), x, y)
