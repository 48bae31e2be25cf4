"""mu follows its schedule: an increment per mini-batch, a factor per epoch, never beyond its maximum."""

import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import altmin


@given(
    start=st.floats(1e-3, 10),
    increment=st.floats(0, 5),
    growth=st.floats(0.5, 3),
    room=st.none() | st.floats(0, 50),
    events=st.text("be", max_size=20),
)
def test_mu_follows_its_schedule(start, increment, growth, room, events):
    maximum = None if room is None else start + room
    penalty = altmin.Penalty(start, increment, growth, maximum)
    assert penalty.value == start
    values = []
    for event in events:
        penalty.step() if event == "b" else penalty.end_epoch()
        values.append(penalty.value)
    assert values == pytest.approx(reference.schedule(start, increment, growth, maximum, events))


def test_training_moves_mu_once_a_batch_and_once_an_epoch_and_uses_it_from_the_next_batch_on():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    am = altmin.AltMin(model, penalty=altmin.Penalty(1.0, increment=0.5, growth=2.0, maximum=6.0))
    x, y = torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])
    seen = []
    for event in "bbebbb":
        if event == "b":
            seen.append(am.step(x, y).penalty)
        else:
            am.end_epoch()
    assert seen == [1.0, 1.5, 4.0, 4.5, 5.0]
    assert am.penalty.value == 5.5


def test_a_saved_mu_is_resumed():
    penalty = altmin.Penalty(1.0, increment=0.25)
    penalty.step()
    other = altmin.Penalty(1.0, increment=0.25)
    other.load_state_dict(penalty.state_dict())
    other.step()
    assert other.value == 1.5


@pytest.mark.parametrize(
    "options, words",
    [
        ({"start": 0.0}, "start of the penalty must be above 0.0, given 0.0"),
        ({"start": float("nan")}, "start of the penalty must be above"),
        ({"growth": -1.0}, "growth of the penalty must be above"),
        ({"increment": -0.1}, "increment of the penalty must be at least 0, given -0.1"),
        ({"start": 2.0, "maximum": 1.0}, "maximum of the penalty must be at least its start 2.0, given 1.0"),
    ],
    ids=str,
)
def test_a_schedule_that_makes_no_sense_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        altmin.Penalty(**options)
