"""Gated recurrences: their map, their formula step by step, and training through them."""

import pytest
import torch
from calculus_cases import GATED, contract
from torch import nn

import altmin
from altmin.calculus import map_of
from altmin.calculus.gated import GatedRecurrence

F64 = torch.float64
TestMaps = contract(GATED)


def test_states_follow_the_formula_step_by_step() -> None:
    torch.manual_seed(0)
    x, k = torch.randn(3, 9, 8, dtype=F64), 4
    found, h = altmin.layers.GatedScan()(x), torch.zeros(3, k, dtype=F64)
    for t in range(9):
        z, c = torch.sigmoid(x[:, t, :k]), torch.tanh(x[:, t, k:])
        h = h - z * h + z * c
        torch.testing.assert_close(found[:, t], h)


def test_no_graph_is_needed() -> None:
    assert type(map_of(altmin.layers.GatedScan())) is GatedRecurrence
    assert not any(block.uses_autograd for block in altmin.split(altmin.models.min_gru(4, 2, 3, 2)))


@pytest.mark.parametrize("layers", [1, 3])
def test_without_code_moves_weights_follow_backprop_through_time(layers: int) -> None:
    torch.manual_seed(1)
    model, x, y = altmin.models.min_gru(5, layers, 3, 4).double(), torch.randn(6, 11, 3, dtype=F64), torch.arange(6) % 4
    before = [p.detach().clone() for p in model.parameters()]
    loss = nn.functional.cross_entropy(model(x), y)
    expected = torch.autograd.grad(loss, list(model.parameters()))
    am = altmin.AltMin(model, codes=altmin.GradientCodes(share=0.0), weights=altmin.LocalSGD(1.0, momentum=0.0))
    am.step(x, y)
    for p, old, g in zip(model.parameters(), before, expected, strict=True):
        torch.testing.assert_close(p, old - g, rtol=1e-8, atol=1e-12)


def test_another_shape_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="even number"):
        altmin.layers.GatedScan()(torch.zeros(2, 3, 5))
