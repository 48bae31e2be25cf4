"""The maps of discrete activations: values, exact quotients, and no derivative but an estimate that is asked for."""

import pytest
import torch
from calculus_cases import number

import altmin
from altmin.calculus import Discrete, map_of
from altmin.calculus.discrete import StandIn

F64 = torch.float64
EACH = pytest.mark.parametrize("module", [altmin.Sign(), *(altmin.Staircase(n) for n in (2, 3, 4, 5))], ids=str)


def point() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, 6, generator=generator, dtype=F64), torch.randn(4, 6, generator=generator, dtype=F64)


@EACH
def test_a_quotient_is_that_of_the_values_before_and_after(module):
    x, u = point()
    m = map_of(module)
    y, saved = m.forward((), x)
    quotient, moved = m.quotient((), saved, u, number(0.5))
    assert torch.equal(y, module(x))
    torch.testing.assert_close(quotient, (module(x) - module(x - 0.5 * u)) / 0.5)
    assert quotient.any()
    torch.testing.assert_close(moved, m.forward((), x - 0.5 * u)[1])


@EACH
def test_there_is_no_derivative(module):
    x, u = point()
    m = map_of(module)
    saved = m.forward((), x)[1]
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


@EACH
def test_a_step_by_an_estimate_leaves_the_activation_as_it_is(module):
    x, u = point()
    m = map_of(altmin.StraightThrough(module))
    saved = m.forward((), x)[1]
    quotient, moved = m.quotient((), saved, u, number(0.5))
    assert not quotient.any()
    assert all(torch.equal(a, b) for a, b in zip(moved, saved, strict=True))
    assert quotient.shape == u.shape
    assert not torch.equal(module(x - 0.5 * u), module(x)), "though the step crosses thresholds"


def test_a_discrete_activation_is_of_its_own_kind():
    assert type(map_of(altmin.Sign())) is type(map_of(altmin.Staircase(4))) is Discrete
