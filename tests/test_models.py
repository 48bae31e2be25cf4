"""Models compute their formulas, by constructor and by name."""

import itertools
from typing import Any

import pytest
import torch
from method_cases import net
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin import methods, models
from altmin.models import binary_mlp, lenet5, mlp, pad
from altmin.models.names import KNOWN


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


def test_an_autoencoder_goes_back_through_its_widths_from_xaviers_weights() -> None:
    model, x = models.autoencoder((6, 5, 2)), torch.randn(4, 1, 2, 3)
    torch.testing.assert_close(model(x), by_hand(model, x, [torch.tanh] * 3))
    layers = [m for m in models.autoencoder() if isinstance(m, nn.Linear)]
    widths = [784, 1000, 500, 250, 30, 250, 500, 1000, 784]
    assert [(m.in_features, m.out_features) for m in layers] == list(itertools.pairwise(widths))
    for m in layers:
        expected = (2 / (m.in_features + m.out_features)) ** 0.5
        assert m.weight.std().item() == pytest.approx(expected, rel=0.05)
        assert not m.bias.any()


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


def test_lenet5_is_its_formula() -> None:
    torch.manual_seed(0)
    model, x = lenet5(outputs=7, channels=3), torch.randn(2, 3, 28, 28)
    p = list(model.parameters())
    h = F.max_pool2d(torch.relu(F.conv2d(x, p[0], p[1], padding=2)), 2)
    h = F.max_pool2d(torch.relu(F.conv2d(h, p[2], p[3])), 2).flatten(1)
    h = torch.relu(F.linear(torch.relu(F.linear(h, p[4], p[5])), p[6], p[7]))
    torch.testing.assert_close(model(x), F.linear(h, p[8], p[9]))


@pytest.mark.parametrize("steps", [[(3, 1)], [], [(2, 1), (2, 2)]])
def test_sequences_that_cannot_be_padded_are_refused(steps: list) -> None:
    with pytest.raises(ValueError):
        pad([torch.zeros(*shape) for shape in steps], 2)


IMAGE, SEQUENCE = (1, 28, 28), (784, 1)


@pytest.mark.parametrize(
    "name, shape, make",
    [
        ("mlp-3x20", IMAGE, lambda: models.mlp(784, (20, 20, 20), 10)),
        ("mlp-1x300", (28,), lambda: models.mlp(28, (300,), 10)),
        ("tanh-2x6", (28,), lambda: models.mlp(28, (6, 6), 10, nn.Tanh)),
        ("linear", IMAGE, lambda: models.mlp(784, (), 10)),
        ("residual-3x20", IMAGE, lambda: models.residual_mlp(20, 3, 784, 10)),
        ("lenet5", (3, 28, 28), lambda: models.lenet5(10, 3)),
        ("elman-15", (9, 2), lambda: models.elman(15, 9, 2, 10)),
        ("binary-7", IMAGE, lambda: models.binary_mlp(784, (7, 7), 10)),
        ("resnet18-4", (3, 8, 8), lambda: models.resnet18(4, 10, 3)),
        ("staircase-7", IMAGE, lambda: models.binary_mlp(784, (7, 7), 10, (lambda: altmin.Staircase(4), nn.Tanh))),
    ],
)
def test_a_name_stands_for_the_model_that_its_function_makes(name, shape, make) -> None:
    torch.manual_seed(0)
    named = models.create(name, shape, 10)
    torch.manual_seed(0)
    made = make()
    x = torch.randn(3, *shape)
    assert str(named) == str(made)
    assert torch.equal(named(x), made(x))


@pytest.mark.parametrize("name, heads", [("gpt-2x96", 3), ("gpt-2x100", 2), ("gpt-2x20", 1)])
def test_a_gpt_has_a_head_for_every_32_units_as_far_as_they_divide_the_width(name: str, heads: int) -> None:
    torch.manual_seed(0)
    named = models.create(name, (7,), 5, tokens=True)
    torch.manual_seed(0)
    made = models.gpt(2, int(name.partition("x")[2]), heads, 7, 5)
    x = torch.randint(5, (3, 7))
    assert torch.equal(named(x), made(x))


@pytest.mark.parametrize("name", KNOWN)
def test_every_name_that_is_offered_makes_a_model(name: str) -> None:
    if name.startswith("gpt"):
        assert models.create(name, (4,), 10, tokens=True)(torch.zeros(2, 4).long()).shape == (2, 4, 10)
        return
    shape = SEQUENCE if name.startswith(("elman", "gru", "lstm", "mingru")) else IMAGE
    with torch.no_grad():
        assert models.create(name, shape, 10)(torch.zeros(2, *shape)).shape == (2, 10)


WRONG = {
    "unknown": [
        ("mlp-2x10O", IMAGE),
        ("mlp-0x100", IMAGE),
        ("residual-32", IMAGE),
        ("binary-0", IMAGE),
        ("gpt-6", (28,)),
    ],
    "choose": [("lenet5", (3, 32, 32)), ("lenet5", (28, 28)), ("resnet18-8", (28,)), ("gpt-2x32", (28,))],
    "steps": [("elman-15", IMAGE)],
    "8 x 8": [("resnet18-8", (3, 4, 8))],
}


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_name_or_a_wrong_shape_gets_a_sentence_with_a_remedy(words: str) -> None:
    for name, shape in WRONG[words]:
        with pytest.raises(ValueError, match=words):
            models.create(name, shape, 10)


def test_tokens_are_for_a_gpt_only() -> None:
    with pytest.raises(ValueError, match="gpt-"):
        models.create("mlp-2x100", (64,), 65, tokens=True)


@pytest.mark.parametrize(
    "name, freeze",
    [
        *((name, models.freeze_first) for name in methods.names()),
        *((name, models.freeze_hidden) for name in ("adam", "am-adam", "am-mem")),
    ],
)
def test_frozen_layers_keep_their_weights_with_every_method(name: str, freeze: Any) -> None:
    model = net(name, 4, 5, 6, 3)
    freeze(model)
    before = [p.detach().clone() for p in model.parameters()]
    method = methods.create(name, model)
    x, y = torch.randn(8, 4), torch.randint(3, (8,))
    for _ in range(2):  # the first step of SOAP only sets its bases
        method.step(x, y)
        method.end_epoch()
    same = [torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
    kept = 2 if freeze is models.freeze_first else 4
    assert same == [True] * kept + [False] * (6 - kept)


def test_a_model_without_parameters_has_no_layers_to_freeze() -> None:
    for freeze in (models.freeze_first, models.freeze_hidden):
        with pytest.raises(ValueError):
            freeze(nn.Sequential(nn.ReLU()))
