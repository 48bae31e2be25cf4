"""Which parts of a graph are attention in closed form, and that they then train as autograd would have it."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import altmin
from altmin.calculus.attention import Attention
from altmin.calculus.graph import Graph
from altmin.graph.maps import map_of


class Layer(nn.Module):
    """x + out(attention(qkv(x))), where `how` says in which words."""

    def __init__(self, how):
        super().__init__()
        self.how, self.qkv, self.out = how, nn.Linear(4, 12), nn.Linear(4, 4)
        self.bias = nn.Parameter(torch.randn(5, 5))
        self.drop = 0.1
        self.register_buffer("mask", torch.ones(5, 5, dtype=torch.bool).tril())

    def forward(self, x: Tensor) -> Tensor:
        return x + self.out(self.how(self, self.qkv(x)))


def chunks(layer, h):
    q, k, v = h.chunk(3, -1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def sized(layer, h):
    n, t, d = h.size()
    q, k, v = h.split(d // 3, dim=2)
    q, k, v = (part.view(n, t, 2, d // 6).transpose(1, 2) for part in (q, k, v))
    y = F.scaled_dot_product_attention(query=q, key=k, value=v, scale=0.5)
    return y.transpose(1, 2).contiguous().view(n, t, d // 3)


def entries(layer, h):
    h = h.reshape(-1, 5, 3, 4).permute(2, 0, 1, 3)
    return F.scaled_dot_product_attention(h[0], h[1], h[2], None, 0.0)


def buffer(layer, h):
    q, k, v = h.chunk(3, -1)
    return F.scaled_dot_product_attention(q, k, v, layer.mask)


def learnt(layer, h):
    q, k, v = h.chunk(3, -1)
    return F.scaled_dot_product_attention(q, k, v, layer.bias)


def dropped(layer, h):
    q, k, v = h.chunk(3, -1)
    return F.scaled_dot_product_attention(q, k, v, dropout_p=layer.drop)


def scaled(layer, h):
    q, k, v = h.chunk(3, -1)
    return F.scaled_dot_product_attention(q * q, k, v)


def sometimes_causal(layer, h):
    q, k, v = h.chunk(3, -1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=h.shape[1] > 1)


def scale_of_sizes(layer, h):
    q, k, v = h.chunk(3, -1)
    return F.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.25)


def one_of_itself(layer, h):
    q, k, v = h.chunk(3, -1)
    return F.scaled_dot_product_attention(q, k, F.scaled_dot_product_attention(q, k, v))


def closed(how) -> list[bool]:
    m = map_of(Layer(how))
    return [isinstance(node.map, Attention) for node in m.nodes] if isinstance(m, Graph) else []


@pytest.mark.parametrize("how", [chunks, sized, entries])
def test_attention_between_views_is_a_closed_form(how):
    assert sum(closed(how)) == 1
    assert not map_of(Layer(how)).uses_autograd


@pytest.mark.parametrize("how", [buffer, learnt, dropped, scaled, sometimes_causal, scale_of_sizes, one_of_itself])
def test_attention_with_anything_else_goes_through_autograd(how):
    found = closed(how)
    assert found
    assert not any(found)


@pytest.mark.parametrize(
    "how", [chunks, sized, entries, buffer, learnt, scaled, sometimes_causal, scale_of_sizes, one_of_itself]
)
def test_gradients_are_autograds_as_the_share_goes_to_zero(how):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), Layer(how), Layer(how), nn.Linear(4, 2)).double()
    x, y = torch.randn(6, 5, 3, dtype=torch.float64), torch.randn(6, 5, 2, dtype=torch.float64)
    trained = [p for name, p in model.named_parameters() if how is learnt or "bias" not in name.split(".")[1:2]]
    wanted = torch.autograd.grad(nn.MSELoss()(model(x), y), trained, allow_unused=True)
    before = [p.detach().clone() for p in trained]
    codes, rule = altmin.GradientCodes(share=1e-9), altmin.LocalSGD(1.0, momentum=0.0)
    altmin.AltMin(model, nn.MSELoss(), codes=codes, weights=rule).step(x, y)
    for p, old, grad in zip(trained, before, wanted, strict=True):
        expected = torch.zeros_like(p) if grad is None else grad
        torch.testing.assert_close(old - p.detach(), expected, rtol=1e-5, atol=1e-9)
