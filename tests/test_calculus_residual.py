"""The residual layer keeps the contract of all maps, with autograd for its oracle."""

import torch
from calculus_cases import contract, function, parameters, stands_at
from hypothesis import given
from hypothesis import strategies as st

from altmin.calculus import AnyModule, map_of
from altmin.layers import Residual

TestMaps = contract([(lambda: Residual(5, 0.3), (3, 5)), (lambda: Residual(4), (3, 2, 4))])


@given(batch=st.integers(1, 4), width=st.integers(1, 6), scale=st.floats(-2, 2), seed=st.integers(0, 2**31))
def test_a_residual_layer_of_any_width_and_scale_agrees_with_autograd(batch, width, scale, seed):
    torch.manual_seed(seed)
    module = Residual(width, scale).double()
    m, p, x = map_of(module), parameters(module), torch.randn(batch, width, dtype=torch.float64)
    y, saved = m.forward(p, x)
    torch.testing.assert_close(y, x + scale * x.clamp_min(0) @ p[0].T)
    stands_at(m, saved, function(module), x, p)
    assert torch.equal(m.input(saved), x)


def test_a_residual_layer_with_a_hook_goes_through_autograd():
    module = Residual(3)
    module.register_forward_hook(lambda *_: None)
    assert isinstance(map_of(module), AnyModule)
