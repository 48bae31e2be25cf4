"""The first layer with parameters is left out of the training, and no other."""

import pytest
import torch
from method_cases import net
from torch import nn

from altmin import methods, models


@pytest.mark.parametrize("name", methods.names())
def test_a_frozen_first_layer_keeps_its_weights_with_every_method(name: str) -> None:
    model = net(name, 4, 5, 6, 3)
    models.freeze_first(model)
    before = [p.detach().clone() for p in model.parameters()]
    method = methods.create(name, model)
    method.step(torch.randn(8, 4), torch.randint(3, (8,)))
    method.end_epoch()
    same = [torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
    assert same == [True, True, False, False, False, False]


def test_the_first_layer_may_be_inside_another_module() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(2, 3), nn.ReLU()), nn.Linear(3, 1))
    models.freeze_first(model)
    assert [p.requires_grad for p in model.parameters()] == [False, False, True, True]


def test_a_model_without_parameters_has_no_first_layer() -> None:
    with pytest.raises(ValueError, match="Sequential has no parameters, so no first layer to freeze"):
        models.freeze_first(nn.Sequential(nn.ReLU()))


@pytest.mark.parametrize("name", ["adam", "am-adam", "am-mem"])
def test_with_frozen_hidden_layers_only_the_last_learns(name: str) -> None:
    model = net(name, 4, 5, 6, 3)
    models.freeze_hidden(model)
    before = [p.detach().clone() for p in model.parameters()]
    methods.create(name, model).step(torch.randn(8, 4), torch.randint(3, (8,)))
    same = [torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
    assert same == [True, True, True, True, False, False]


def test_a_model_without_parameters_has_no_hidden_layers() -> None:
    with pytest.raises(ValueError, match="Sequential has no parameters, so no hidden layers to freeze"):
        models.freeze_hidden(nn.Sequential(nn.ReLU()))
