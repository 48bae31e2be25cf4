"""Fully connected nets compute what their formula says, and start with the variance that it asks for."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin.models import binary_mlp, mlp


def by_hand(model: nn.Sequential, x: Tensor, activations: list) -> Tensor:
    """W_L s(... s(W_1 x + b_1) ...) + b_L with the weights of the model."""
    *hidden, last = [layer for layer in model if isinstance(layer, nn.Linear)]
    h = x.flatten(1)
    for layer, activation in zip(hidden, activations, strict=True):
        h = activation(F.linear(h, layer.weight, layer.bias))
    return F.linear(h, last.weight, last.bias)


def test_an_mlp_is_its_formula_on_flattened_samples() -> None:
    x = torch.randn(4, 1, 2, 3)
    relu = mlp(6, (5, 7), 3)
    torch.testing.assert_close(relu(x), by_hand(relu, x, [torch.relu] * 2))
    tanh = mlp(6, (5,), 3, nn.Tanh)
    torch.testing.assert_close(tanh(x), by_hand(tanh, x, [torch.tanh]))
    widths = [(m.in_features, m.out_features) for m in mlp(784, (100, 100), 10) if isinstance(m, nn.Linear)]
    assert widths == [(784, 100), (100, 100), (100, 10)]


def test_a_binary_mlp_is_its_formula_with_signs() -> None:
    x = torch.randn(4, 6)
    model = binary_mlp(6, (5, 7), 3)
    signs = lambda c: torch.where(c < 0, -1.0, 1.0)  # noqa: E731
    torch.testing.assert_close(model(x), by_hand(model, x, [signs, torch.tanh]))
    every = binary_mlp(6, (5, 4, 3), 2, altmin.Sign)
    torch.testing.assert_close(every(x), by_hand(every, x, [signs] * 3))


def test_dropout_is_before_every_layer_but_the_first() -> None:
    kinds = [type(module) for module in binary_mlp(6, (5, 4), 2, altmin.Sign, dropout=0.2)]
    assert kinds == [nn.Flatten, *[nn.Linear, altmin.Sign, nn.Dropout] * 2, nn.Linear]


@pytest.mark.parametrize("make, activation, part", [(mlp, torch.relu, 0.5), (binary_mlp, torch.sign, 1.0)])
def test_the_first_weights_keep_the_size_of_what_passes_through(make, activation, part) -> None:
    """E s(c)^2 is `part` of E c^2 (1 for signs of unit codes): the variance of weights makes up for it."""
    torch.manual_seed(0)
    layers = [layer for layer in make(400, (400, 400), 10) if isinstance(layer, nn.Linear)]
    h = torch.randn(500, 400)
    for layer in layers[:-1]:
        assert not layer.bias.any()
        expected = 1 / (part * 400)
        assert layer.weight.var().item() == pytest.approx(expected, rel=0.02), "160,000 weights: 0.35% deviation"
        c = layer(h)
        assert c.square().mean().item() == pytest.approx(h.square().mean().item() / part, rel=0.1)
        h = activation(c)


def test_one_activation_for_each_hidden_layer_or_one_for_all() -> None:
    with pytest.raises(ValueError, match="activations has 1 entries for 2 hidden layers; give one for each, or one"):
        binary_mlp(activations=[altmin.Sign])
