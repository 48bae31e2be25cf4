"""Which map a module gets: closed forms as far as they go, and one graph of autograd for each part without."""

import pytest
import torch
import torch.nn.functional as F
from branching import Basic, Dense, Excite, PreNorm, SwiGLU
from graph_cases import Net, as_backprop
from torch import Tensor, nn

from altmin.calculus import AnyModule
from altmin.calculus.graph import Graph
from altmin.graph.maps import map_of


def kinds(module: nn.Module) -> list[str]:
    m = map_of(module)
    assert isinstance(m, Graph)
    return [type(each).__name__ for each in m.inner]


def test_a_residual_block_is_closed_forms_alone():
    assert kinds(PreNorm()) == ["LayerNorm", "Linear", "Gelu", "Linear", "Sum"]
    assert kinds(SwiGLU()) == ["Scaling", "Linear", "Silu", "Linear", "Product", "Linear", "Scaling", "Sum"]
    assert kinds(Dense())[:2] == ["Concatenation", "Linear"]
    assert not any(map_of(make()).uses_autograd for make in (PreNorm, SwiGLU, Dense, Basic, Excite))


def overwrites(net: Net, h: Tensor) -> Tensor:
    """Changes a tensor in place of which it uses a view."""
    y = net.b(h)
    half = y[:, :2]
    y += torch.tanh(h)
    return y + torch.cat([half, half], 1)


def tied(net: Net, h: Tensor) -> Tensor:
    return h + net.b(torch.tanh(net.b(h)))


def decides(net: Net, h: Tensor) -> Tensor:
    return h + net.b(h) if bool(h.sum() > 0) else net.b(h)


@pytest.mark.parametrize("between", [overwrites, tied, decides])
def test_where_the_order_of_calls_matters_the_module_stays_whole(between):
    torch.manual_seed(0)
    module = Net(between).double()
    assert isinstance(map_of(module), AnyModule) == (between is not tied)
    model = nn.Sequential(nn.Linear(4, 4), module, nn.Linear(3, 2)).double()
    as_backprop(model, torch.randn(6, 4, dtype=torch.float64), torch.randint(2, (6,)))


class Attends(nn.Module):
    """x + out(attention(qkv(x))), where `how` says in which words."""

    def __init__(self, how) -> None:
        super().__init__()
        self.how, self.qkv, self.out = how, nn.Linear(4, 12), nn.Linear(4, 4)
        if how is learnt:
            self.bias = nn.Parameter(torch.randn(5, 5))
        self.register_buffer("mask", torch.ones(5, 5, dtype=torch.bool).tril())

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return x + self.out(self.how(self, q, k, v))


def causal(layer, q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def heads_of_sizes(layer, *parts):
    n, t, d = parts[0].size()
    q, k, v = (part.view(n, t, 2, d // 2).transpose(1, 2) for part in parts)
    y = F.scaled_dot_product_attention(query=q, key=k, value=v, scale=q.shape[-1] ** -0.25)
    return y.transpose(1, 2).contiguous().view(n, t, d)


def masked(layer, q, k, v):
    return F.scaled_dot_product_attention(q, k, v, layer.mask)


def learnt(layer, q, k, v):
    return F.scaled_dot_product_attention(q, k, v, layer.bias)


def one_of_itself(layer, q, k, v):
    return F.scaled_dot_product_attention(q * q, k, F.scaled_dot_product_attention(q, k, v))


@pytest.mark.parametrize("how", [causal, heads_of_sizes, masked, learnt, one_of_itself])
def test_attention_is_one_function_between_closed_forms_and_trains_as_autograd_says(how):
    torch.manual_seed(0)
    layer = Attends(how)
    assert kinds(layer) == ["Linear", "AnyModule", "Linear", "Sum"]
    model = nn.Sequential(nn.Linear(3, 4), layer, Attends(how), nn.Linear(4, 2)).double()
    x, y = torch.randn(6, 5, 3, dtype=torch.float64), torch.randn(6, 5, 2, dtype=torch.float64)
    as_backprop(model, x, y, nn.MSELoss())


def test_a_hook_makes_a_module_a_function():
    module = PreNorm()
    module.expand.register_forward_hook(lambda m, given, out: 2 * out)
    assert "AnyModule" in kinds(module)
    module.register_forward_hook(lambda m, given, out: 2 * out)
    assert isinstance(map_of(module), AnyModule)
