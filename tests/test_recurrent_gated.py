"""Codes in time of `nn.RNN`, `nn.GRU` and `nn.LSTM`, trained in place: against loops over time written from the
formulas of the cells, in float64."""

import pytest
import torch
from conftest import residuals_of
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_gated import F64, KINDS, codes_of, h_of, run
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin.calculus import map_of
from altmin.layers import Last, Outputs, RecurrentLayer

MU = 0.7
close = torch.testing.assert_close


def layer(kind: type, hidden: int = 4, seed: int = 0) -> tuple[RecurrentLayer, list[Tensor], Tensor]:
    torch.manual_seed(seed)
    rnn = kind(3, hidden, batch_first=True).double()
    with torch.no_grad():
        for p in rnn.parameters():
            p.copy_(0.8 * torch.randn_like(p))
    return RecurrentLayer(rnn), [p.detach() for p in rnn.parameters()], torch.randn(5, 6, 3, dtype=F64)


# -- the map ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_forward_and_codes_are_the_loop_over_time(kind):
    module, p, x = layer(kind)
    m = map_of(module)
    h, saved = m.forward(p, x)
    for i in range(len(x)):
        codes, wanted = run(kind, p, x[i])
        close(h[i], wanted)
        close(m.replay(p, saved, x)[0][i], codes)
    close(module(x).detach(), h)


@pytest.mark.parametrize("kind", KINDS)
def test_the_local_map_is_linear_in_its_input_and_has_the_gradients_of_one_step(kind):
    module, p, x = layer(kind)
    m = map_of(module)
    h, saved = m.forward(p, x)
    before = F.pad(h, (0, 0, 1, 0))[:, :-1]

    def local(x, *p):
        rows = [torch.stack([codes_of(kind, list(p), x[i, t], before[i, t]) for t in range(6)]) for i in range(5)]
        return torch.stack(rows)

    c, back = torch.func.vjp(local, x, *p)
    u, v = torch.randn_like(x), torch.randn_like(c)
    dx, *grads = back(v)
    close(m.vjp(p, saved, v), dx)
    close([*m.grads(p, saved, v)], grads)
    close(m.jvp(p, saved, u), local(x + u, *p) - c)
    quotient, moved = m.quotient(p, saved, u, torch.tensor(0.5, dtype=F64))
    close(quotient, 2 * (c - local(x - 0.5 * u, *p)))
    close(m.replay(p, moved, x)[0], local(x - 0.5 * u, *p))


@pytest.mark.parametrize("kind", KINDS)
def test_the_activation_follows_all_codes_over_any_distance(kind):
    module, p, x = layer(kind)
    m = map_of(module)
    saved = m.forward(p, x)[1]
    codes, activation = m.replay(p, saved, x)[0], m.activation(p, saved)
    u = torch.randn_like(codes)
    for i in range(len(x)):
        of_codes = lambda c: h_of(kind, c, 4)  # noqa: E731
        close(activation.jvp(u)[i], torch.func.jvp(of_codes, (codes[i],), (u[i],))[1])
        for e in (0.01, 0.5, 3.0):
            wanted = (of_codes(codes[i]) - of_codes(codes[i] - e * u[i])) / e
            close(activation.quotient(u, torch.tensor(e, dtype=F64))[i], wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_short_moves_do_not_cancel_in_float32(kind):
    module, p, x = layer(kind)
    m = map_of(module)
    u = torch.randn(5, 6, len(p[0]) + 4 * (kind is nn.GRU), dtype=F64)
    wanted = m.activation(p, m.forward(p, x)[1]).jvp(u)
    single = [t.float() for t in p]
    activation = m.activation(single, m.forward(single, x.float())[1])
    for e in (0.0, 1e-20, 1e-7):
        close(activation.quotient(u.float(), torch.tensor(e)).double(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_sweep_is_the_gradient_at_the_codes_of_backprop_through_time(kind):
    module, p, x = layer(kind)
    m = map_of(module)
    h, saved = m.forward(p, x)
    e = torch.randn_like(h)
    g = m.activation(p, saved).sweep(e)
    for i in range(len(x)):
        added = torch.zeros_like(g[i])
        close(g[i], torch.func.vjp(lambda a, i=i: run(kind, p, x[i], a)[1], added)[1](e[i])[0])


# -- moving the codes -------------------------------------------------------------------------------------------------


def problem(kind: type, seed: int = 0, size: float = 1.0) -> tuple[nn.Sequential, Tensor, Tensor]:
    torch.manual_seed(seed)
    body = Outputs(kind(3, 4, batch_first=True)), Last(), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)
    model = nn.Sequential(*body).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(size * 0.7 * torch.randn_like(p))
    return model, torch.randn(4, 6, 3, dtype=F64), torch.randint(3, (4,))


@pytest.mark.parametrize("order", ["codes-first", "weights-first"])
@pytest.mark.parametrize("share", [0.1, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_codes_move_by_the_best_length_along_backprop_through_time(kind, share, order):
    model, x, y = problem(kind)
    p, V = [q.detach() for q in model[0].rnn.parameters()], model[2].weight.detach()
    above = residuals_of(model, altmin.RecurrentCodes(share=share), x, y, MU)[1]
    m, delta = float(above.scale), above.delta
    paths = [run(kind, p, s) for s in x]
    g, q, left = [], [], []
    for (codes, h), s, d in zip(paths, x, delta, strict=True):
        e = torch.zeros_like(h)
        e[-1] = V.T @ d
        g.append(torch.func.vjp(lambda a, s=s: run(kind, p, s, a)[1], torch.zeros_like(codes))[1](e)[0])
        q.append(torch.func.jvp(lambda c: h_of(kind, c, 4), (codes,), (g[-1],))[1])

    def rest(g, q):
        """g_t - W q_{t-1}."""
        before = [torch.zeros(4, dtype=F64), *q[:-1]]
        without_bias = [p[0], p[1], torch.zeros_like(p[2]), torch.zeros_like(p[3])]
        zero = torch.zeros(3, dtype=F64)
        return torch.stack([g[t] - codes_of(kind, without_bias, zero, before[t]) for t in range(len(g))])

    Vq = torch.stack([V @ each[-1] for each in q])
    square = sum(float(rest(*each).square().sum()) for each in zip(g, q, strict=True))
    a = float((delta * Vq).sum()) / (float(Vq.square().sum()) + square)
    a = min(a, share * float(delta.norm() / Vq.norm()))
    layer, above, _ = residuals_of(model, altmin.RecurrentCodes(share=share, order=order), x, y, MU)
    close(float(layer.scale), m * a)
    for i, (codes, h) in enumerate(paths):
        moved = h_of(kind, codes - m * a * g[i], 4)
        close(layer.saved[0].h[:, i], moved)
        Q = (h - moved) / (m * a)
        left.append(rest(g[i], Q))
        close(layer.delta[i], left[-1] if order == "codes-first" else g[i])
        close(above.saved[0][i], moved[-1])
        close(above.delta[i], delta[i] - a * (V @ Q[-1]) if order == "codes-first" else delta[i])
    close(float(layer.cost), (m * a) ** 2 * sum(float(each.square().sum()) for each in left))
    close(float(layer.moved), (m * a) ** 2 * sum(float(each.square().sum()) for each in g))


@settings(deadline=None)
@given(*(st.integers(0, 10_000), st.sampled_from(KINDS), st.floats(0.05, 20), st.floats(0.1, 4), st.floats(0, 1)))
def test_no_step_raises_the_objective(seed, kind, mu, size, share):
    model, x, y = problem(kind, seed, size)
    short = nn.Sequential(*model[:2], nn.Linear(4, 3).double())  # the codes lie right below the loss's block
    for net in (model, short):
        metrics = altmin.AltMin(net, codes=altmin.RecurrentCodes(share=share), penalty=mu).step(x, y)
        assert metrics.objective <= float(metrics.loss) * (1 + 1e-12)
