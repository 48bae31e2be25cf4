"""Errors name what was given, what is expected, and the remedy."""

from altmin.errors import Diverged, unknown


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
