"""A series of maps is the map of their composition."""

import torch
from calculus_cases import close, function, gradients, jvp, parameters
from torch import nn

from altmin.calculus import map_of
from altmin.calculus.series import Series


def test_every_operation_is_that_of_the_composition():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Tanh(), nn.Linear(5, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 3, bias=False)).double()
    series, p, f = Series([map_of(m) for m in model]), parameters(model), function(model)
    x, u = torch.randn(2, 6, 5, dtype=torch.float64)
    y, saved = series.forward(p, x)
    v = torch.randn_like(y)
    on_x, *on_p = gradients(f, x, p, v)
    close(y, f(x, *p))
    close(series.vjp(p, saved, v), on_x)
    close(series.jvp(p, saved, u), jvp(f, x, p, u))
    for grad, wanted in zip(series.grads(p, saved, v), on_p, strict=True):
        close(grad, wanted)
    g, grads = series.vjp_and_grads(p, saved, v)
    for found, wanted in zip([g, *grads], [on_x, *on_p], strict=True):
        close(found, wanted)
    q, moved = series.quotient(p, saved, u, 0.3)
    close(q, (y - f(x - 0.3 * u, *p)) / 0.3)
    close(series.vjp(p, moved, v), gradients(f, x - 0.3 * u, p, v)[0])
    other = [2 * each for each in p]
    close(series.replay(other, saved, x - u)[0], f(x - u, *other))
    assert (series.first_with_parameters, series.affine, Series([map_of(model[1])]).affine) == (1, False, True)
