"""A model by its command-line name is the one that its function makes."""

import pytest
import torch
from torch import nn

import altmin
from altmin import models
from altmin.models.names import KNOWN

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
    shape = SEQUENCE if name.startswith("elman") else IMAGE
    with torch.no_grad():
        assert models.create(name, shape, 10)(torch.zeros(2, *shape)).shape == (2, 10)


@pytest.mark.parametrize(
    "name, shape, words",
    [
        ("mlp-2x10O", IMAGE, "unknown model 'mlp-2x10O'; did you mean 'mlp-2x100'"),
        ("mlp-0x100", IMAGE, "unknown model 'mlp-0x100'"),
        ("residual-32", IMAGE, "unknown model 'residual-32'; did you mean 'residual-32x32'"),
        ("binary-0", IMAGE, "unknown model 'binary-0'"),
        ("lenet5", (3, 32, 32), r"images of channels x 28 x 28, these samples are \(3, 32, 32\); choose an mlp"),
        ("lenet5", (28, 28), r"these samples are \(28, 28\)"),
        ("resnet18-8", (28,), r"images of channels x height x width, .* \(28,\); choose --data cifar10"),
        ("resnet18-8", (3, 4, 8), r"8 x 8 or more, these samples are \(3, 4, 8\)"),
        ("gpt-2x32", (28,), r"gpt-2x32 reads sequences of tokens, .* \(28,\) numbers; choose --data shakespeare"),
        ("gpt-6", (28,), "unknown model 'gpt-6'; did you mean 'gpt-6x128'"),
        ("elman-15", IMAGE, r"sequences of steps x features, .* \(1, 28, 28\); choose --data mnist-sequential"),
    ],
)
def test_a_wrong_name_or_a_wrong_shape_gets_a_sentence_with_a_remedy(name: str, shape: tuple, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        models.create(name, shape, 10)


def test_tokens_are_for_a_gpt_only() -> None:
    with pytest.raises(
        ValueError, match="mlp-2x100 reads numbers, these samples are sequences of tokens; choose a gpt-"
    ):
        models.create("mlp-2x100", (64,), 65, tokens=True)
    with pytest.raises(ValueError, match="unknown model 'gpt-6x'; did you mean 'gpt-6x128'"):
        models.create("gpt-6x", (64,), 65, tokens=True)
