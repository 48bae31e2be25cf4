"""Activations, in place or not."""

import pytest
import torch
from calculus_cases import ELEMENTWISE, close, contract, function, gradients
from torch import nn

from altmin.calculus import map_of

TestMaps = contract(ELEMENTWISE)


@pytest.mark.parametrize(
    "make",
    [
        *(nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.SiLU, nn.Mish, nn.ReLU6, nn.Hardtanh, nn.Hardswish),
        *(nn.Hardsigmoid, lambda **k: nn.Threshold(0.3, -1.0, **k)),
    ],
    ids=lambda make: make.__name__,
)
def test_an_in_place_activation_gives_what_the_ordinary_one_gives(make):
    torch.manual_seed(0)
    x, u, v = torch.randn(3, 4, 5, dtype=torch.float64)
    kept = x.clone()
    m, ordinary = map_of(make(inplace=True)), make()
    y, saved = m.forward((), x)
    assert torch.equal(x, kept), "the code below must not be overwritten"
    close(y, ordinary(kept))
    close(m.vjp((), saved, v), gradients(function(ordinary), kept, (), v)[0])
    close(m.replay((), saved, u)[0], ordinary(u))
    assert torch.equal(x, kept)
