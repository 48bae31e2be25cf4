"""A fully connected net as layers: what is taken, and what is refused in words."""

import pytest
import torch
from torch import nn

from altmin.common.errors import Diverged
from altmin.core.losses import adapt
from altmin.methods.layered import check_batch, demand_finite, demand_step, layers_of
from altmin.models import mlp


def test_layers_one_after_the_other_are_the_model() -> None:
    inner = nn.Sequential(nn.Identity(), nn.Linear(3, 5, bias=False))
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 3), nn.ReLU(), inner, nn.Tanh(), nn.Linear(5, 2)).double()
    layers = layers_of(model, "admm", (nn.ReLU, nn.Tanh))
    x = torch.randn(7, 2, 3, dtype=torch.float64)
    a = x.flatten(1)
    for layer in layers:
        a = layer.linear(a) if layer.activation is None else layer.activation(layer.linear(a))
    assert torch.equal(a, model(x))
    assert [type(layer.activation) for layer in layers] == [nn.ReLU, nn.Tanh, type(None)]


@pytest.mark.parametrize(
    "model, words",
    [
        (nn.Sequential(nn.Conv2d(1, 2, 3)), r"admm trains Linear layers .*\(ReLU\), given Conv2d"),
        (nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)), "given Tanh"),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)), "given Linear"),
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "a Linear layer at the end"),
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Dropout()), "given Dropout"),
        (nn.LSTM(2, 2), "given LSTM"),
        (nn.Sequential(), "a Linear layer at the end"),
    ],
)
def test_any_other_model_is_refused(model: nn.Module, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        layers_of(model, "admm", [nn.ReLU])


def test_hooks_and_shared_or_half_frozen_layers_are_refused() -> None:
    hooked = mlp(3, (4,), 2)
    hooked[1].register_forward_hook(lambda *_: None)
    with pytest.raises(TypeError, match="given Linear with a hook"):
        layers_of(hooked, "bcd", [nn.ReLU])
    half = mlp(3, (4,), 2)
    half[1].bias.requires_grad_(False)
    with pytest.raises(ValueError, match="of layer 0 either weight and bias are frozen or none; bcd moves both"):
        layers_of(half, "bcd", [nn.ReLU])
    tied = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    tied[2].weight = tied[0].weight
    with pytest.raises(ValueError, match="two layers share their weights"):
        layers_of(tied, "bcd", [nn.ReLU])
    with pytest.raises(ValueError, match="there is nothing to train"):
        layers_of(mlp(3, (4,), 2).requires_grad_(False), "bcd", [nn.ReLU])


def test_a_batch_must_fit_the_first_layer_and_the_loss() -> None:
    model, labels = mlp(6, (4,), 2), torch.tensor([0, 1, 1])
    loss = adapt(nn.CrossEntropyLoss())
    check_batch(model, loss, torch.zeros(3, 2, 3), labels)
    with pytest.raises(ValueError, match=r"samples of \(2, 2\) do not fit the first layer, which takes 6 numbers"):
        check_batch(model, loss, torch.zeros(3, 2, 2), labels)
    with pytest.raises(ValueError, match="do not fit"):
        check_batch(model[1:], loss, torch.zeros(3, 2, 6), labels)
    with pytest.raises(ValueError, match="label 2 is out of range"):
        check_batch(model, loss, torch.zeros(3, 6), torch.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match="the targets hold NaN"):
        check_batch(model, adapt(nn.MSELoss()), torch.zeros(1, 6), torch.tensor([[0.0, torch.nan]]))
    with pytest.raises(ValueError, match="compares like with like"):
        check_batch(model, adapt(nn.MSELoss()), torch.zeros(3, 6), labels)


def test_numbers_that_are_finite_may_have_a_sum_that_is_not() -> None:
    large = torch.full((3, 2), 3e38)
    demand_finite(large, torch.tensor([0, 1, 1]))
    for hidden in (torch.nan, torch.inf, -torch.inf):
        for bad in (large.clone(), torch.zeros(3, 2), torch.full((3, 2), -torch.inf)):
            bad[1, 1] = hidden
            with pytest.raises(ValueError, match="the input holds NaN or infinite"):
                demand_finite(bad, torch.tensor([0, 1, 1]))


@pytest.mark.parametrize(
    "loss, grad, lr, where",
    [
        (torch.nan, 1.0, 0.1, "the loss is not finite"),
        (-torch.inf, 1.0, 0.1, "the loss is not finite"),
        (1.0, torch.nan, 0.1, "the weights' next value"),
        (1.0, 1e20, 0.1, "the weights' next value"),  # Adam squares it
        (1.0, 1e10, 1e30, "the weights' next value"),
        (1.0, 1e10, 1e3, ""),
        (-1.0, 0.0, 0.1, ""),
    ],
)
def test_a_step_that_would_leave_the_finite_numbers_is_known_before_it_is_taken(
    loss: float, grad: float, lr: float, where: str
) -> None:
    model = mlp(2, (), 1)
    optimizer = torch.optim.SGD(model.parameters(), lr)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    model[1].weight.grad[0, 1] = grad
    if where:
        with pytest.raises(Diverged, match=where):
            demand_step(torch.tensor(loss), optimizer)
    else:
        demand_step(torch.tensor(loss), optimizer)
