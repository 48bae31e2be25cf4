"""Errors, and descriptions of settings."""

import functools
from typing import Any

import pytest
import torch
from torch import nn

from altmin.common.describe import describe, digest, kind
from altmin.common.errors import demand, unknown


def test_an_unknown_name_is_answered_with_the_nearest_and_all_choices() -> None:
    error = unknown("method", "am-adm", ["sgd", "am-adam", "adam"])
    assert str(error) == "unknown method 'am-adm'; did you mean 'am-adam'? The choices are: adam, am-adam, sgd"
    assert str(unknown("split", "xyz", ("train", "test"))) == "unknown split 'xyz'. The choices are: test, train"


@pytest.mark.parametrize("value", ["0.5", None, True, [1.0], 1j, int, -0.1, float("nan"), float("inf")])
def test_what_is_no_number_in_range_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="share of GradientCodes must be a finite number of at least 0"):
        demand("GradientCodes", "share", value)


def test_bounds_are_in_or_out_and_numbers_whole_where_they_must_be() -> None:
    demand("A", "b", 0)
    demand("A", "b", 1, low=1, whole=True)
    for options in ({"value": 0, "above": True}, {"value": 1.5, "whole": True}, {"value": 0, "low": 1}):
        with pytest.raises(ValueError, match="b of A must be"):
            demand("A", "b", **options)


# -- settings in words ------------------------------------------------------------------------------------------------


def one(o: Any, y: Any) -> Any:
    return o.sum()


class Plain:
    def __init__(self, rate: float):
        self.rate, self.function, self.weights = rate, one, torch.zeros(3)


class Odd:
    def __repr__(self) -> str:
        return "Odd\n  at 0x7f00 of 3"


def test_settings_in_words_are_the_same_in_any_process() -> None:
    assert describe(one) == f"{__name__}.one"
    assert describe(torch.optim.SGD) == "torch.optim.sgd.SGD"
    assert describe(functools.partial(one, 3, y="a")) == f"{__name__}.one(3, y='a')"
    assert describe(Plain(0.5)) == f"Plain(function={__name__}.one, rate=0.5)"
    assert describe(nn.HuberLoss(delta=2.0)) == "HuberLoss(delta=2.0, reduction='mean')"
    assert describe(Odd()) == "Odd of 3"
    weighted = [describe(nn.CrossEntropyLoss(torch.tensor([1.0, w]))) for w in (2.0, 3.0)]
    assert weighted[0] != weighted[1]


def test_a_digest_depends_on_every_byte_and_not_on_how_a_tensor_lies() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    assert digest(x) == digest(x.t().contiguous().t())
    for i in range(6):
        y = x.clone()
        y.view(-1)[i] += 1e-3
        assert digest(y) != digest(x)
    assert digest(torch.tensor([1, 2], dtype=torch.int16)) == digest("\1\0\2\0")
    assert (kind(x), kind(torch.tensor(1))) == ("float32 2x3", "int64")
