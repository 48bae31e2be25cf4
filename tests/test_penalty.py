"""mu follows its schedule: an increment per mini-batch, a factor per epoch, never beyond its maximum."""

import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import altmin
from altmin.core.penalty import grown
from altmin.training import checkpoint


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


MEMBERS = [(1.0, 0.5, 1.0, 9.0), (2.0, 0.0, 3.0, 9.0), (8.0, 0.25, 2.0, 9.0), (4.0, 1.0, 0.5, 2.5)]


def test_mu_of_many_members_grows_as_that_of_each_alone():
    mu, increment, growth, maximum = torch.tensor(MEMBERS, dtype=torch.float64).mT
    alone = [min(m * g + i, most) for m, i, g, most in MEMBERS]
    assert grown(mu, increment, growth, maximum).tolist() == alone
    assert [grown(*member) for member in MEMBERS] == alone
    assert torch.func.vmap(grown)(mu, increment, growth, maximum).tolist() == alone


def test_mu_without_a_maximum_grows_on_as_a_tensor_and_as_a_number():
    assert grown(1e6, 1.0, 2.0, None) == 2e6 + 1
    assert grown(torch.tensor(1e6, dtype=torch.float64), 1.0, 2.0, None).item() == 2e6 + 1


class Doubled(altmin.Penalty):
    """mu doubles with every third mini-batch."""

    def __init__(self, start: float = 1.0):
        super().__init__(start, increment=0.0, maximum=None)
        self.count = 0

    def step(self) -> None:
        self.count += 1
        self.value *= 2 if self.count % 3 == 0 else 1


def trainer(**options) -> altmin.AltMin:
    return altmin.AltMin(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), penalty=Doubled(), **options)


def test_the_schedule_of_a_subclass_resumes_where_it_was(tmp_path):
    x, y = torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])
    first, second = trainer(), trainer()
    first.step(x, y)
    first.step(x, y)
    checkpoint.save(tmp_path / "state", first.state_dict())
    second.load_state_dict(checkpoint.load(tmp_path / "state"))
    for am in (first, second):
        assert [am.step(x, y).penalty for _ in range(5)] == [1.0, 2.0, 2.0, 2.0, 4.0]


def test_what_computes_mu_on_the_device_refuses_other_schedules():
    for build in (
        lambda: trainer(compile=True),
        lambda: altmin.Ensemble([trainer()]),
        lambda: altmin.Recorded(trainer()),
    ):
        with pytest.raises(ValueError, match="Doubled"):
            build()


NAN = float("nan")


@pytest.mark.parametrize("options", [{"start": 0.0}, {"start": NAN}, {"growth": -1.0}, {"increment": -0.1}])
def test_a_schedule_that_makes_no_sense_is_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        altmin.Penalty(**options)
    with pytest.raises(ValueError, match="maximum"):
        altmin.Penalty(start=2.0, maximum=1.0)
