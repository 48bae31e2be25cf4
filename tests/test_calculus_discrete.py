"""The maps of discrete activations: values, and no derivative but an estimate that is asked for."""

import pytest
import torch

import altmin
from altmin.calculus import Discrete, map_of
from altmin.calculus.discrete import StandIn

F64 = torch.float64
EACH = pytest.mark.parametrize("module", [altmin.Sign(), *(altmin.Staircase(n) for n in (2, 3, 4, 5))], ids=str)


def point() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, 6, generator=generator, dtype=F64), torch.randn(4, 6, generator=generator, dtype=F64)


@EACH
def test_there_are_values_and_no_derivative(module):
    x, u = point()
    m = map_of(module)
    y, saved = m.forward((), x)
    assert torch.equal(y, module(x))
    assert torch.equal(m.replay((), saved, u)[0], module(u))
    for operation in (m.vjp, m.jvp):
        with pytest.raises(TypeError, match="has no derivative"):
            operation((), saved, u)


@EACH
@pytest.mark.parametrize("estimated", [lambda m: map_of(altmin.StraightThrough(m)), lambda m: StandIn(map_of(m))])
def test_an_estimate_passes_what_autograd_passes_through_straight_through(module, estimated):
    x, u = point()
    x.requires_grad_()
    m = estimated(module)
    y, saved = m.forward((), x.detach())
    (expected,) = torch.autograd.grad(altmin.StraightThrough(module)(x), x, u)
    assert torch.equal(y, module(x.detach()))
    torch.testing.assert_close(m.vjp((), saved, u), expected)
    torch.testing.assert_close(m.jvp((), saved, u), expected)  # a diagonal J is its own transpose
    assert 0 < int((expected == 0).sum()) < expected.numel()


def test_a_discrete_activation_is_of_its_own_kind():
    assert type(map_of(altmin.Sign())) is type(map_of(altmin.Staircase(4))) is Discrete
