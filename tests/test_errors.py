"""Errors name what was given, what is expected, and the remedy."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import altmin
from altmin.common.errors import Diverged, demand, unknown


def test_an_unknown_name_is_answered_with_the_nearest_and_all_choices_in_order() -> None:
    error = unknown("method", "am-adm", ["sgd", "am-adam", "adam"])
    assert isinstance(error, ValueError)
    assert str(error) == "unknown method 'am-adm'; did you mean 'am-adam'? The choices are: adam, am-adam, sgd"


def test_where_nothing_is_near_only_the_choices_are_named() -> None:
    assert str(unknown("split", "xyz", ("train", "test"))) == "unknown split 'xyz'. The choices are: test, train"
    assert str(unknown("kind", None, ["a"])).startswith("unknown kind None. ")


def test_a_divergence_says_where_and_what_to_do() -> None:
    error = Diverged("the loss in epoch 3")
    assert isinstance(error, RuntimeError)
    assert error.where == "the loss in epoch 3"
    words = "training diverged: the loss in epoch 3 is not finite; lower the learning rate or raise the penalty"
    assert str(error) == words
    assert str(Diverged("c_2", "use float32")) == "training diverged: c_2 is not finite; use float32"


@pytest.mark.parametrize("value", ["0.5", None, True, [1.0], {}, 1j, int])
def test_what_is_no_number_is_a_type_error(value):
    with pytest.raises(TypeError, match=r"share of GradientCodes must be a finite number of at least 0, given "):
        demand("GradientCodes", "share", value)


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), 10**400])
def test_a_number_out_of_range_is_a_value_error(value):
    with pytest.raises(ValueError, match="share of GradientCodes must be a finite number"):
        demand("GradientCodes", "share", value)


def test_bounds_are_in_or_out_and_numbers_whole_where_they_must_be():
    demand("A", "b", 0)
    demand("A", "b", 1, low=1, whole=True)
    for options in ({"value": 0, "above": True}, {"value": 1.5, "whole": True}, {"value": 0, "low": 1}):
        with pytest.raises(ValueError, match="b of A must be"):
            demand("A", "b", **options)


def test_choices_stand_in_the_order_of_their_numbers():
    said = str(unknown("module", "x", ["10.conv", "2", "10.add", "layer10", "1", "layer9"]))
    assert said.endswith("The choices are: 1, 2, 10.add, 10.conv, layer9, layer10")


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(8, 4), torch.zeros(8, dtype=torch.int64)


def fitted(**options: Any) -> None:
    altmin.fit(altmin.AltMin(net()), batch(), batch(), **{"epochs": 1, "batch_size": 4, **options})


OPTIMIZER = torch.optim.Adam(net().parameters())
CALLS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "model": (altmin.AltMin, OPTIMIZER),
    "loss": (lambda given: altmin.AltMin(net(), loss=given), OPTIMIZER),
    "codes": (lambda given: altmin.AltMin(net(), codes=given), net()),
    "weights": (lambda given: altmin.AltMin(net(), weights=given), net()),
    "penalty": (lambda given: altmin.AltMin(net(), penalty=given), net()),
    "at, modules": (lambda given: altmin.split(net(), at=given), net()),
    "at, a tensor": (lambda given: altmin.split(net(), at=given), torch.zeros(3)),
    "lr": (altmin.LocalAdam, net()),
    "order": (lambda given: altmin.GradientCodes(order=given), net()),
    "state": (lambda given: altmin.AltMin(net()).load_state_dict(given), net()),
    "a method's model": (lambda given: altmin.methods.create("adam", given), OPTIMIZER),
    "explained": (lambda given: altmin.explain(given, *batch()), OPTIMIZER),
    "data": (lambda given: altmin.data.load("mnist", given), net()),
    "epochs": (lambda given: fitted(epochs=given), net()),
    "metrics": (lambda given: fitted(metrics=given), OPTIMIZER),
    "callbacks": (lambda given: fitted(callbacks=given), OPTIMIZER),
    "schedule": (lambda given: fitted(schedule=given), net()),
    "scheduler": (lambda given: fitted(scheduler=given), OPTIMIZER),
    "augment": (lambda given: fitted(augment=given), OPTIMIZER),
    "precision": (lambda given: fitted(precision=given), net()),
    "fit, a name": (lambda given: altmin.fit(given, batch(), epochs=1, batch_size=4), "am-adam"),
    "fit, a model": (lambda given: altmin.fit(given, batch(), epochs=1, batch_size=4), net()),
    "fit, a class": (lambda given: altmin.fit(given, batch(), epochs=1, batch_size=4), altmin.AltMin),
    "Distributed": (altmin.Distributed, net()),
    "Recorded": (altmin.Recorded, net()),
}
"""What takes an argument, and something wrong to give; modules and optimizers print in many lines."""


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_answered_in_one_short_line(name: str) -> None:
    call, given = CALLS[name]
    with pytest.raises((TypeError, ValueError)) as caught:
        call(given)
    said = str(caught.value)
    assert "\n" not in said
    assert len(said) < 400
    assert "given" in said or said.startswith("unknown ")
