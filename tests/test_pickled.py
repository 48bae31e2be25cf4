"""Rules, losses and trainers can be pickled, before a run and in the middle of one, and say what their options are."""

import pickle
from typing import Any

import pytest
from trainer_cases import EVERY_RULE, RULES, batch, convolutional, equal, mlp

import altmin


def again(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


@EVERY_RULE
@pytest.mark.parametrize("make", [mlp, convolutional], ids=["mlp", "convolutional"])
def test_a_trainer_that_was_pickled_goes_on_as_the_original(make: Any, rule: Any) -> None:
    am = altmin.AltMin(make(), weights=RULES[rule](), penalty=altmin.Penalty(growth=2.0))
    am.step(*batch(0))
    am.end_epoch()
    am.gather(*batch(1))
    other = again(am)
    assert equal(other.state_dict(), am.state_dict())
    for each in (am, other):
        each.gather(*batch(2))
        each.apply()
        each.step(*batch(3))
    assert equal(other.model.state_dict(), am.model.state_dict())
    assert equal(other.state_dict(), am.state_dict())
    assert other.chain.model is other.model
    assert other.updates.theta[0][0] is next(other.model.parameters())
    assert repr(other) == repr(am)
    rule = RULES[rule]()
    assert repr(again(rule)) == repr(rule)
