"""Layers with weights of few bits: rounding, estimated gradients, maps, and the nets that are made of them."""

import pytest
import torch
from calculus_cases import close
from torch import nn
from torch.nn import functional as F

import altmin
from altmin.calculus import Quantised, map_of
from altmin.layers import Committed, QuantisedConv2d, QuantisedLinear
from altmin.layers.few_bits import STEPS

F64 = torch.float64
BITS = pytest.mark.parametrize("bits", [1, 2, 3, 4])
MAKE = pytest.mark.parametrize(
    "make, shape",
    [
        (lambda bits: QuantisedLinear(7, 4, bits=bits), (5, 7)),
        (lambda bits: QuantisedLinear(7, 4, bias=False, bits=bits), (5, 7)),
        (lambda bits: QuantisedConv2d(2, 3, 3, stride=2, padding=1, bits=bits), (4, 2, 7, 7)),
        (lambda bits: QuantisedConv2d(2, 3, 2, bias=False, bits=bits), (4, 2, 5, 5)),
    ],
)


def nearest(w: torch.Tensor, bits: int) -> torch.Tensor:
    """The rounded weights, one by one."""
    found = torch.empty_like(w)
    for out, row in zip(found, w, strict=True):
        a = STEPS[bits - 1] * row.abs().mean()
        levels = a * torch.arange(-(2**bits) + 1, 2**bits, 2)
        flat = [levels[(levels - each).abs().argmin()] for each in row.flatten()]
        out.copy_(torch.stack(flat).view_as(row))
    return found


def plain(module: nn.Module, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The layer with these weights."""
    if isinstance(module, nn.Linear):
        return F.linear(x, w, module.bias)
    return F.conv2d(x, w, module.bias, module.stride, module.padding)


@BITS
@MAKE
def test_a_layer_uses_the_nearest_of_its_levels(make, shape, bits):
    torch.manual_seed(0)
    module, x = make(bits).double(), torch.randn(shape, dtype=F64)
    w = nearest(module.weight.detach(), bits)
    close(module.values(module.weight), w)
    close(module(x), plain(module, x, w))
    q = module.integers(module.weight)
    assert set(q.flatten().tolist()) <= set(range(-(2**bits) + 1, 2**bits, 2))
    assert len(set(q.flatten().tolist())) > bits


@BITS
@MAKE
def test_the_parameter_gets_the_gradient_of_the_rounded_weights(make, shape, bits):
    torch.manual_seed(0)
    module, x = make(bits).double(), torch.randn(shape, dtype=F64, requires_grad=True)
    w = nearest(module.weight.detach(), bits).requires_grad_()
    y = module(x)
    v = torch.randn_like(y)
    rest = [] if module.bias is None else [module.bias]
    expected = torch.autograd.grad(plain(module, x, w), [x, w, *rest], v)
    for found, wanted in zip(torch.autograd.grad(y, [x, module.weight, *rest], v), expected, strict=True):
        close(found, wanted)


@BITS
@MAKE
def test_a_map_agrees_with_its_module(make, shape, bits):
    torch.manual_seed(0)
    module = make(bits).double()
    m, p = map_of(module), [q.detach() for q in module.parameters()]
    assert type(m) is Quantised
    assert not m.is_linear, "no regression finds weights of few bits"
    x, u = torch.randn(2, *shape, dtype=F64)
    y, saved = m.forward(p, x)
    close(y, module(x))
    v = torch.randn_like(y)
    leaf = x.clone().requires_grad_()
    on_x, *on_p = torch.autograd.grad(module(leaf), [leaf, *module.parameters()], v)
    close(m.vjp(p, saved, v), on_x)
    for found, wanted in zip(m.grads(p, saved, v), on_p, strict=True):
        close(found, wanted)
    close(m.jvp(p, saved, u), module(x + u) - module(x))


def test_sums_of_signs_are_exact():
    """So that integers give the same activations."""
    torch.manual_seed(0)
    layer = QuantisedLinear(999, 3, bias=False)
    x = torch.randn(50, 999).sign()
    exact = x.int() @ layer.integers(layer.weight).int().T
    assert torch.equal(layer(x), exact.float() * layer.scale(layer.weight)[:, 0])


@pytest.mark.parametrize("bits", [0, 5, 1.0, True])
@pytest.mark.parametrize(
    "make", [lambda bits: QuantisedLinear(2, 2, bits=bits), lambda bits: QuantisedConv2d(1, 1, 1, bits=bits)]
)
def test_other_numbers_of_bits_are_refused(make, bits):
    with pytest.raises(ValueError, match="1 to 4 bits"):
        make(bits)


@pytest.mark.parametrize("method", ["am-adam", "adam"])
def test_a_binary_convolutional_net_learns(method):
    torch.manual_seed(0)
    model = altmin.models.binary_cnn(outputs=2, width=4, activation=Committed)
    y = torch.randint(2, (40,))
    x = torch.randn(40, 1, 28, 28) + torch.linspace(-1, 1, 28) * (2 * y - 1).view(-1, 1, 1, 1)
    made = altmin.methods.create(method, model, lr=0.01)
    losses = [float(made.step(x, y).loss) for _ in range(15)]
    assert losses[-1] < losses[0] / 2


def test_the_search_refuses_weights_of_few_bits_and_the_estimate_takes_them():
    torch.manual_seed(0)
    model = altmin.models.binary_mlp(5, (4, 4), 2, altmin.Sign, bits=1)
    x, y = torch.randn(8, 5), torch.randint(2, (8,))
    with pytest.raises(ValueError, match="StraightThroughCodes"):
        altmin.AltMin(model, codes=altmin.DiscreteCodes()).step(x, y)
    before = model[1].weight.clone()
    altmin.AltMin(model, codes=altmin.StraightThroughCodes()).step(x, y)
    assert not torch.equal(model[1].weight, before)
