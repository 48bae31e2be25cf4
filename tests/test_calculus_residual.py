"""The residual layer keeps the contract of all maps, with autograd for its oracle."""

from unittest.mock import patch

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


def test_what_is_compiled_is_the_same_sum():
    """Torch's compiler drops the alpha of x.add(W a, alpha=s), so other operations are compiled."""
    torch.manual_seed(0)
    m, p = map_of(Residual(5, 0.3)), [torch.randn(5, 5)]
    x, u, v = torch.randn(3, 4, 5)

    def found() -> list[torch.Tensor]:
        y, saved = m.forward(p, x)
        return [y, m.vjp(p, saved, v), m.jvp(p, saved, u)]

    wanted = found()
    with patch.object(torch.compiler, "is_compiling", lambda: True), patch.object(torch.Tensor, "add", None):
        torch.testing.assert_close([*found()], [*wanted])


def test_a_residual_layer_with_a_hook_goes_through_autograd():
    module = Residual(3)
    module.register_forward_hook(lambda *_: None)
    assert isinstance(map_of(module), AnyModule)
