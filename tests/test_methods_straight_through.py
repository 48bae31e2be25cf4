"""Backprop with an estimated derivative: against the estimate written out, and on models of one's own."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from method_cases import problem
from torch import Tensor, nn
from trainer_cases import equal

import altmin
from altmin.methods import create

F64 = torch.float64


def signs(dtype: torch.dtype = F64, seed: int = 1, activation: Any = altmin.Sign) -> nn.Sequential:
    torch.manual_seed(seed)
    return altmin.models.binary_mlp(4, (8, 6), 3, (activation, nn.Tanh)).to(dtype)


class Residual(nn.Module):
    """No Sequential: one activation is used twice, with a skip, batch norm and a parameter of its own."""

    def __init__(self, activation: nn.Module):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.norm, self.activation = nn.BatchNorm1d(6), activation
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        a = self.activation(self.norm(self.first(x)))
        return self.last(a + self.scale * self.activation(self.second(a)))


@pytest.mark.parametrize("activation", [altmin.Sign, lambda: altmin.Staircase(4)])
def test_the_gradient_passes_where_inputs_are_at_most_one_in_size(activation: Any) -> None:
    """The gradients of every layer, written out from the chain rule with 1 where |z| <= 1 for the derivative."""
    x, y = problem(30, dtype=F64)
    model = signs(activation=activation)
    W, V, U = (model[l].weight.detach().clone() for l in (1, 3, 5))
    z = x @ W.mT
    s = model[2](z)
    a = torch.tanh(s @ V.mT)
    output = a @ U.mT + model[5].bias.detach()
    delta = (torch.softmax(output, 1) - F.one_hot(y, 3)) / 30
    second = delta @ U * (1 - a * a)
    first = second @ V * (z.abs() <= 1)
    assert 0.1 < (z.abs() <= 1).double().mean() < 0.9
    loss = create("straight-through", model).step(x, y).loss
    torch.testing.assert_close(loss, F.cross_entropy(output, y))
    for l, v, below in ((5, delta, a), (3, second, s), (1, first, x)):
        torch.testing.assert_close(model[l].weight.grad, v.mT @ below)
        torch.testing.assert_close(model[l].bias.grad, v.sum(0))


@pytest.mark.parametrize("kind", ["a Sequential", "a module of one's own"])
def test_steps_are_those_of_backprop_on_a_model_whose_activations_are_wrapped(kind: str) -> None:
    def build(activation: nn.Module) -> nn.Module:
        torch.manual_seed(3)
        return Residual(activation).double() if kind != "a Sequential" else signs(activation=lambda: activation)

    plain, wrapped = build(altmin.Sign()), build(altmin.StraightThrough(altmin.Sign()))
    ours = create("straight-through", plain, lr=0.01, weight_decay=0.1)
    theirs = create("adam", wrapped, lr=0.01, weight_decay=0.1, fused=True)
    first = next(plain.parameters()).detach().clone()
    for seed in range(4):
        x, y = problem(30, seed, dtype=F64)
        assert torch.equal(ours.step(x, y).loss, theirs.step(x, y).loss)
    assert equal(plain.state_dict(), wrapped.state_dict())
    assert equal(ours.state_dict()["optimizer"]["state"], theirs.state_dict()["optimizer"]["state"])
    assert not torch.equal(first, next(plain.parameters())), "what lies below the activation has moved"


def test_outside_its_steps_the_model_is_the_discrete_one_that_was_given() -> None:
    x, y = problem(30, dtype=F64)
    model = signs()
    modules, keys = list(model.modules()), list(model.state_dict())
    method = create("straight-through", model)
    method.step(x, y)
    assert method.model is model
    assert all(a is b for a, b in zip(model.modules(), modules, strict=True))
    assert list(model.state_dict()) == keys
    assert set(model[:3](x).unique().tolist()) == {-1.0, 1.0}
    with pytest.raises(TypeError, match="has no derivative"):
        model(x).sum().backward()
