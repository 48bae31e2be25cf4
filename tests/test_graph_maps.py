"""Which map a module gets: closed forms as far as they go, and one graph of autograd for each part without."""

import pytest
import torch
from branching import Attention, Basic, Dense, Excite, PreNorm, Split, SwiGLU
from torch import Tensor, nn

import altmin
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


def test_what_has_no_closed_form_is_one_function_between_those_that_have():
    assert kinds(Attention()) == ["LayerNorm", "Linear", "AnyModule", "Linear", "Sum"]


def test_a_part_with_two_values_takes_along_who_uses_them():
    assert kinds(Split()) == ["Linear", "AnyModule", "Sum"]


class Overwrites(nn.Module):
    """Changes a tensor in place of which it uses a view."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        half = y[:, :2]
        y += torch.tanh(x)
        return y + torch.cat([half, half], 1)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(torch.tanh(self.layer(x)))


class Decides(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(x) if bool(x.sum() > 0) else self.layer(x)


def test_a_parameter_in_two_places_gets_the_gradients_of_both():
    torch.manual_seed(0)
    module, x = Tied().double(), torch.randn(6, 4, dtype=torch.float64)
    m, (u, v) = map_of(module), torch.randn(2, 6, 4, dtype=torch.float64)
    assert isinstance(m, Graph)
    assert m.names == ("layer.weight", "layer.bias")
    p = [module.get_parameter(name).detach() for name in m.names]
    y, saved = m.forward(p, x)
    torch.testing.assert_close(y, module(x))

    def function(weight, bias, x):
        return x + nn.functional.linear(torch.tanh(nn.functional.linear(x, weight, bias)), weight, bias)

    *grads, back = torch.func.vjp(function, *p, x)[1](v)
    torch.testing.assert_close(m.vjp_and_grads(p, saved, v), (back, grads))
    torch.testing.assert_close(m.jvp(p, saved, u), torch.func.jvp(lambda x: function(*p, x), (x,), (u,))[1])


@pytest.mark.parametrize("make", [Overwrites, Tied, Decides])
def test_where_the_order_of_calls_matters_the_module_stays_whole(make):
    torch.manual_seed(0)
    module = make().double()
    assert isinstance(map_of(module), AnyModule) == (make is not Tied)
    model = nn.Sequential(nn.Linear(4, 4), module, nn.Linear(4, 2)).double()
    x, y = torch.randn(6, 4, dtype=torch.float64), torch.randint(2, (6,))
    wanted = torch.autograd.grad(nn.CrossEntropyLoss()(model(x), y), list(model.parameters()))
    before = [p.detach().clone() for p in model.parameters()]
    altmin.AltMin(model, codes=altmin.GradientCodes(share=1e-9), weights=altmin.LocalSGD(1.0, momentum=0.0)).step(x, y)
    for p, old, grad in zip(model.parameters(), before, wanted, strict=True):
        torch.testing.assert_close(old - p.detach(), grad, rtol=1e-5, atol=1e-9)


def test_a_hook_makes_a_module_a_function():
    module = PreNorm()
    module.expand.register_forward_hook(lambda m, given, out: 2 * out)
    assert "AnyModule" in kinds(module)
    module.register_forward_hook(lambda m, given, out: 2 * out)
    assert isinstance(map_of(module), AnyModule)
