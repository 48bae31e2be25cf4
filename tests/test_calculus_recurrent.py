"""The maps of layers in time: linear in what one step is given, with the codes of the step before it fixed."""

import pytest
import torch
from calculus_cases import close, stands_at
from torch import Tensor
from torch.nn import functional as F

import altmin
from altmin.calculus import Steps, map_of


def recurrent(padded: bool) -> tuple[altmin.Recurrent, Tensor]:
    """A layer with lively weights, and sequences; where padded, of one to five steps."""
    torch.manual_seed(0)
    layer = altmin.Recurrent(2, 4, padded).double()
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn_like(p) * 0.8 if p.requires_grad else p)
    x = torch.randn(5, 6, 2, dtype=torch.float64)
    if padded:
        real = (torch.arange(6) <= torch.arange(5)[:, None]).double().unsqueeze(2)
        x = torch.cat([x * real, real], 2)
    return layer, x


def own(layer: altmin.Recurrent) -> list[Tensor]:
    return [layer.weight_ih_l0.detach(), layer.weight_hh_l0.detach(), layer.bias_ih_l0.detach()]


@pytest.mark.parametrize("padded", [False, True])
def test_a_recurrent_map_is_linear_step_by_step(padded):
    layer, x = recurrent(padded)
    m, p = map_of(layer), own(layer)
    h, saved = m.forward(p, x)
    real = x[..., -1:] if padded else torch.ones_like(x[..., :1])

    def step_by_step(U, W, b, x):
        before = torch.cat([torch.zeros_like(h[:, :1]), h[:, :-1]], 1)
        return (x[..., :2] @ U.T + before @ W.T + b) * real

    v, u = torch.randn_like(h) * real, torch.randn_like(x) * real
    c, back = torch.func.vjp(step_by_step, *p, x)
    close(m.replay(p, saved, x)[0], c)
    close([*(*m.grads(p, saved, v), m.vjp(p, saved, v))], [*back(v)])
    close(m.jvp(p, saved, u), step_by_step(*p, x + u) - c)


@pytest.mark.parametrize("padded", [False, True])
def test_the_columns_of_a_recurrent_map_give_its_codes_and_its_gradients(padded):
    layer, x = recurrent(padded)
    m, p = map_of(layer), own(layer)
    h, saved = m.forward(p, x)
    c = m.replay(p, saved, x)[0]
    v = torch.randn_like(h) * (x[..., -1:] if padded else 1.0)
    a, r = m.columns(saved, v)
    close(a @ torch.cat([p[0], p[1], p[2][:, None]], 1).T, c.transpose(0, 1).flatten(0, 1))
    close(r.T @ a, torch.cat([g if g.ndim > 1 else g[:, None] for g in m.grads(p, saved, v)], 1))


def test_the_readout_is_a_linear_map_of_every_step():
    torch.manual_seed(0)
    readout, h = altmin.Readout(4, 2).double(), torch.randn(3, 5, 4, dtype=torch.float64)
    m, p = map_of(readout), [t.detach() for t in readout.parameters()]
    f = lambda h, W, b: F.linear(h, W, b)  # noqa: E731
    close(readout(h).detach(), f(h, *p))
    z, saved = m.forward(p, h)
    close(z, f(h, *p))
    assert z.is_contiguous(), "sample by sample"
    stands_at(m, saved, f, h, p)
    v = torch.randn_like(z)
    a, r = m.columns(saved, v)
    dW, db = m.grads(p, saved, v)
    close(r.T @ a, torch.cat([dW, db[:, None]], 1))


def test_the_first_step_follows_no_other():
    """The gradient of W leaves out the last h, that of U and b sees every step."""
    m = map_of(altmin.Recurrent(1, 1).double())
    x, h = torch.full((3, 1, 1), 2.0, dtype=torch.float64), torch.tensor([5.0, 7.0, 100.0], dtype=torch.float64)
    saved = Steps(x, h.view(3, 1, 1), None)
    v = torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64).view(1, 3, 1)
    dU, dW, db = m.grads([torch.zeros(1, 1)] * 3, saved, v)
    assert [dU.item(), dW.item(), db.item()] == [222.0, 10 * 5 + 100 * 7, 111.0]
