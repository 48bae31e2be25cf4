"""Errors name what was given, what is expected, and the remedy."""

import pytest

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
