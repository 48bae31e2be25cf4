"""What holds for all maps: the table of closed forms, selection, and what is refused."""

import pytest
import torch
from calculus_cases import CASES, close, function, gradients, names, parameters
from torch import nn

import altmin
from altmin.calculus import CLOSED_FORMS, map_of
from altmin.calculus.series import Series
from altmin.core.chain import Block
from altmin.layers import (
    Committed,
    LastReal,
    LayerDropout,
    QuantisedConv2d,
    QuantisedLinear,
    RecurrentLayer,
    Residual,
)


def test_every_closed_form_is_held_against_autograd():
    elsewhere = {altmin.Recurrent, altmin.Readout, altmin.Sign, altmin.Staircase, altmin.StraightThrough, Residual}
    elsewhere |= {RecurrentLayer, LayerDropout, LastReal, Committed, QuantisedConv2d, QuantisedLinear}
    assert set(CLOSED_FORMS) <= {type(make()) for make, _ in CASES} | elsewhere  # in files of their own


SELECTING, AFFINE = ([each for each in CASES if getattr(map_of(each[0]()), kind)] for kind in ("selects", "affine"))


@pytest.mark.parametrize("make, shape", SELECTING, ids=names(SELECTING))
def test_a_map_that_selects_hands_on_no_input_twice(make, shape):
    torch.manual_seed(0)
    m = map_of(make())
    y, saved = m.forward((), torch.randn(shape))
    assert m.vjp((), saved, torch.ones_like(y)).unique().tolist() in ([0.0, 1.0], [1.0])


@pytest.mark.parametrize("make, shape", AFFINE, ids=names(AFFINE))
def test_a_map_that_is_affine_is_so_in_its_input_and_in_its_parameters(make, shape):
    torch.manual_seed(0)
    m = map_of(make().double())
    p = [torch.randn_like(q) for q in m.module.parameters()]
    x, u = torch.randn(2, *shape, dtype=torch.float64)
    zero = m.forward(p, 0 * x)[0]
    close(m.forward(p, x + u)[0], m.forward(p, x)[0] + m.forward(p, u)[0] - zero)
    close(m.forward([2 * q for q in p], x)[0], 2 * m.forward(p, x)[0])


def test_the_gradients_of_a_series_and_its_replay_are_those_of_the_composition():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Tanh(), nn.Linear(5, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 3, bias=False)).double()
    series, p, f = Series([map_of(m) for m in model]), parameters(model), function(model)
    x, u = torch.randn(2, 6, 5, dtype=torch.float64)
    y, (_, saved) = Block([], series.maps).forward(p, x)
    v = torch.randn_like(y)
    close([*series.grads(p, saved, v)], [*gradients(f, x, p, v)[1:]])
    other = [2 * each for each in p]
    close(series.replay(other, saved, x - u)[0], f(x - u, *other))
    close(Series(series.maps[1:]).replay(other, saved[1:])[0], f(x, *other))
    assert (series.first_with_parameters, series.affine, Series([map_of(model[1])]).affine) == (1, False, True)
