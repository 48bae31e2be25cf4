"""The registry of methods: found by name, with their options, and mistakes answered with the nearest name."""

from typing import Any, get_args

import pytest
import torch
from method_cases import NAMES, net
from torch import nn

import altmin
from altmin import methods
from altmin.methods import protocol


def test_a_registered_factory_is_found_by_name_with_its_options(own_registry: None) -> None:
    @methods.register("double-sgd")
    def double(model: nn.Module, lr: float = 0.1, loss: nn.Module | None = None) -> methods.Method:
        return methods.create("sgd", model, lr=2 * lr, loss=loss)

    assert "double-sgd" in methods.names()
    assert methods.names() == sorted(methods.names())
    assert methods.factory("double-sgd") is double, "the decorator returns the function itself"
    assert methods.options("double-sgd") == ["lr", "loss"]
    model = nn.Sequential(nn.Linear(2, 2))
    method = methods.create("double-sgd", model, lr=0.3)
    assert method.model is model
    assert method.optimizer.param_groups[0]["lr"] == 0.6


@pytest.mark.parametrize("name", NAMES)
def test_every_method_follows_the_protocol(name: str) -> None:
    """It trains the model it was given, reports the loss before the update, and has an optimizer for a scheduler if it
    has a learning rate."""
    model = net(name, 3, 4, 2)
    x, y = torch.randn(6, 3), torch.tensor([0, 1, 1, 0, 1, 0])
    expected = nn.functional.cross_entropy(model(x), y).item()
    before = [p.detach().clone() for p in model.parameters()]
    method = methods.create(name, model)
    assert method.model is model
    assert isinstance(method.optimizer, torch.optim.Optimizer if "lr" in methods.options(name) else type(None))
    loss = method.step(x, y).loss
    assert loss.shape == ()
    assert not loss.requires_grad
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    method.end_epoch()
    assert all(p.requires_grad for p in model.parameters())
    assert not any(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(
    "name, options, words",
    [
        ("am-adm", {}, "am-adam"),
        ("adam", {"weight-decay": 0.1}, "weight_decay"),
        ("sdg", {}, "sgd"),
        ("adam", {"lr": -1.0}, "lr of adam"),
        ("admm", {"shrink": float("nan")}, "shrink of admm"),
        (nn.Linear(2, 2), {}, "by its name"),
    ],
)
def test_what_cannot_be_created_is_answered_with_the_nearest(name: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        methods.create(name, nn.Sequential(nn.Linear(2, 2)), **options)


def test_the_names_that_type_checkers_know_as_trainers_are_those_that_make_one() -> None:
    """`create` says by overloads which names give an `AltMin`; one that is missing there is only a `Method`."""
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    names = [name for name in NAMES if name.startswith("am-")]
    made = {name for name in names if isinstance(methods.create(name, model), altmin.AltMin)}
    assert made == set(get_args(protocol.Alternating))


ALTERNATING = [name for name in NAMES if name.startswith("am-") and "printed" not in name]


def small() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


@pytest.mark.parametrize("name", ALTERNATING)
def test_share_and_order_reach_the_code_solver(name):
    own = altmin.GradientCodes()
    for given in ({}, {"share": 0.5}, {"share": 0.3, "order": "weights-first"}):
        codes = altmin.methods.create(name, small(), **given).codes
        wanted = {"share": own.share, "order": own.order, **given}
        assert {"share": codes.share, "order": codes.order} == wanted


@pytest.mark.parametrize("name", ALTERNATING)
def test_share_or_order_beside_a_solver_is_refused(name):
    with pytest.raises(ValueError):
        altmin.methods.create(name, small(), codes=altmin.GradientCodes(), share=0.3)
