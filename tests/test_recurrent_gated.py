"""The maps of `nn.RNN`, `nn.GRU` and `nn.LSTM`, trained in place, against the formulas of their cells, in float64."""

import pytest
import torch
from reference_recurrent import F64, KINDS, Layer
from torch import Tensor

from altmin.calculus import Recurrence, map_of
from altmin.layers import RecurrentLayer

close = torch.testing.assert_close
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def layer(kind: type) -> tuple[Recurrence, Layer, Tensor]:
    """The package's map, the loop that it stands for, and their input (5, 6, 3)."""
    torch.manual_seed(0)
    rnn, x = kind(3, 4, batch_first=True).double(), torch.randn(5, 6, 3, dtype=F64)
    with torch.no_grad():
        for p in rnn.parameters():
            p.copy_(0.8 * torch.randn_like(p))
    return map_of(RecurrentLayer(rnn)), Layer(kind, [p.detach() for p in rnn.parameters()], [*x]), x


@EVERY_KIND
def test_forward_and_codes_are_the_loop_over_time(kind):
    m, loop, x = layer(kind)
    h, saved = m.forward(loop.p, x)
    codes, wanted = loop.encode()
    close(h.flatten(0, 1), wanted)
    close(m.replay(loop.p, saved, x)[0].flatten(0, 1), codes)
    close(m.module(x).detach(), h)


@EVERY_KIND
def test_the_local_map_is_linear_in_its_input_and_has_the_gradients_of_one_step(kind):
    m, loop, x = layer(kind)
    h, saved = m.forward(loop.p, x)

    def local(x: Tensor, *p: Tensor) -> Tensor:
        return Layer(kind, p, [*x]).codes(h.flatten(0, 1)).unflatten(0, (5, 6))

    c, back = torch.func.vjp(local, x, *loop.p)
    u, v = torch.randn_like(x), torch.randn_like(c)
    dx, *grads = back(v)
    close(m.vjp(loop.p, saved, v), dx)
    close([*m.grads(loop.p, saved, v)], grads)
    close(m.jvp(loop.p, saved, u), local(x + u, *loop.p) - c)


@EVERY_KIND
def test_the_derivative_of_h_follows_all_codes_and_its_adjoint_is_backprop_through_time(kind):
    m, loop, x = layer(kind)
    h, saved = m.forward(loop.p, x)
    codes, activation = loop.encode()[0], m.activation(loop.p, saved)
    u, e = torch.randn_like(codes), torch.randn_like(h)
    close(activation.jvp(u.unflatten(0, (5, 6))).flatten(0, 1), torch.func.jvp(loop.h, (codes,), (u,))[1])
    still = torch.zeros_like(codes)
    (g,) = torch.func.vjp(lambda added: loop.encode(added)[1], still)[1](e.flatten(0, 1))
    close(activation.sweep(e).flatten(0, 1), g)


@EVERY_KIND
def test_the_feedback_is_the_part_of_the_codes_that_the_state_before_gives(kind):
    m, loop, x = layer(kind)
    h, saved = m.forward(loop.p, x)
    q = torch.randn_like(h)
    change = loop.codes((h + q).flatten(0, 1)) - loop.codes(h.flatten(0, 1))
    close(m.feedback(loop.p, saved, q).flatten(0, 1), change)
