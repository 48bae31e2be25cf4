"""Activations: in place or not, near their kinks and far from them."""

import pytest
import torch
from calculus_cases import ELEMENTWISE, close, contract, function, gradients, number
from hypothesis import given
from hypothesis import strategies as st
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
    close(m.quotient((), saved, u, number(0.5))[0], 2 * (ordinary(kept) - ordinary(kept - 0.5 * u)))
    assert torch.equal(x, kept)


@given(
    x=st.floats(-30, 30),
    size=st.floats(-12, 1),
    sign=st.sampled_from([-1, 1]),
    activation=st.sampled_from([nn.Tanh, nn.Sigmoid, nn.ReLU, nn.GELU, nn.Softplus, nn.ELU, nn.SiLU]),
)
def test_a_step_of_any_size_changes_an_activation_by_the_difference_of_its_values(x, size, sign, activation):
    e, f = 10.0**size, activation()
    x, u = torch.tensor([[x]], dtype=torch.float64), torch.tensor([[float(sign)]], dtype=torch.float64)
    m = map_of(f)
    change = e * m.quotient((), m.forward((), x)[1], u, number(e))[0]
    difference = f(x) - f(x - e * u)
    # The plain difference is right to the rounding of the values, a tangent to the square of its length.
    assert (change - difference).abs() <= 4e-16 * (f(x).abs() + x.abs() + 1) + 1e-6 * e


def test_a_rectifiers_quotient_ends_at_zero_and_begins_there():
    x = torch.tensor([3.0, 1.0, 1.0, -1.0, -1.0, 0.0])
    u = torch.tensor([1.0, 4.0, -4.0, -4.0, 4.0, -2.0])
    m = map_of(nn.ReLU())
    quotient, saved = m.quotient((), m.forward((), x)[1], u, torch.tensor(0.5))
    # x - u / 2 is 2.5, -1, 3, 1, -3, 1: twice the fall of max(x, 0)
    close(quotient, torch.tensor([1.0, 2.0, -4.0, -2.0, 0.0, -2.0]))
    close(m.vjp((), saved, torch.ones(6)), torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 1.0]))


@pytest.mark.parametrize("activation", [nn.Tanh, nn.Sigmoid])
@pytest.mark.parametrize("e", [1e-1, 1e-2, 1e-3, 1e-4])
def test_quotients_of_tanh_and_sigmoid_have_no_cancellation_at_any_size(activation, e):
    torch.manual_seed(0)
    x, u = torch.randn(2, 50)
    m, f = map_of(activation()), activation()
    exact = (f(x.double()) - f(x.double() - e * u.double())) / e
    close(m.quotient((), m.forward((), x)[1], u, torch.tensor(e))[0].double(), exact, 1e-6)


def test_a_rectifier_may_fall_to_zero_and_no_further_than_what_follows_it():
    m = map_of(nn.ReLU())
    saved = m.forward((), torch.tensor([[2.0, -1.0, 3.0]]))[1]
    close(m.kink_distance(saved, None), torch.tensor([[2.0, 0.0, 3.0]]))
    close(m.kink_distance(saved, torch.tensor([[1.0, 1.0, 5.0]])), torch.tensor([[1.0, 0.0, 3.0]]))
