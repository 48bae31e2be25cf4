"""Schedules move a learning rate by batch or by epoch, and put it back."""

import math

import pytest
import torch
from test_fit_loop import Recorder, numbered
from torch import nn

from altmin.fit import SCHEDULES, fit
from altmin.fit.schedule import Schedule


def test_schedules_move_the_rate_by_batch_or_by_epoch_and_put_it_back() -> None:
    def rates(schedule: str) -> list[float]:
        recorder = Recorder()
        fit(recorder, numbered(4), epochs=4, batch_size=2, schedule=schedule)
        assert recorder.optimizer.param_groups[0]["lr"] == 0.5
        return recorder.rates

    assert rates("constant") == [0.5] * 8
    assert rates("linear") == pytest.approx([0.5 * (1 - i / 8) for i in range(8)])
    assert rates("linear/epoch") == pytest.approx([0.5, 0.5, 0.375, 0.375, 0.25, 0.25, 0.125, 0.125])
    assert rates("step") == pytest.approx([0.5] * 4 + [0.05] * 2 + [0.005] * 2)
    assert rates("cosine")[4] == pytest.approx(0.25)
    assert rates("one-cycle")[0] == pytest.approx(0.5 / 25)


def test_a_cosine_is_half_a_wave() -> None:
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=3.0)
    plan = Schedule("cosine", optimizer, epochs=1, batches=6)
    for step in range(7):
        plan.after_batch(step)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(3 * math.cos(math.pi * step / 12) ** 2)


@pytest.mark.parametrize("name, peak", [("one-cycle", 0.3), ("warmup-cosine", 0.03)])
def test_rates_that_rise_first_start_low_and_end_at_nothing(name: str, peak: float) -> None:
    """A line from 1/25 to 1, then half a wave: at its middle one half, steepest there."""
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=2.0)
    plan = Schedule(name, optimizer, epochs=1, batches=2000)
    middle = (1 + peak) / 2
    expected = {0: 1 / 25, peak / 2: (1 / 25 + 1) / 2, peak: 1, middle: 0.5, 1: 0}
    for part, factor in expected.items():
        plan.start(round(2000 * part), 0)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(2 * factor, abs=1e-9)
    recorder = Recorder()
    fit(recorder, numbered(100), epochs=1, batch_size=1, schedule=name)
    assert recorder.rates == pytest.approx([0.5 * SCHEDULES[name](i / 100) for i in range(100)])
    assert recorder.optimizer.param_groups[0]["lr"] == 0.5


def test_every_group_keeps_its_own_rate() -> None:
    first, second = nn.Linear(1, 1), nn.Linear(1, 1)
    groups = [{"params": first.parameters(), "lr": 1.0}, {"params": second.parameters(), "lr": torch.tensor(2.0)}]
    optimizer = torch.optim.SGD(groups)
    tensor = optimizer.param_groups[1]["lr"]
    plan = Schedule("linear/epoch", optimizer, epochs=4, batches=40)
    plan.after_batch(20)
    assert [float(group["lr"]) for group in optimizer.param_groups] == [1, 2]
    plan.after_epoch(1)
    assert [float(group["lr"]) for group in optimizer.param_groups] == [0.75, 1.5]
    assert optimizer.param_groups[1]["lr"] is tensor, "a recorded step reads that tensor"
    plan.restore()
    assert [float(group["lr"]) for group in optimizer.param_groups] == [1, 2]


def test_only_a_run_at_a_constant_rate_may_be_prolonged() -> None:
    """What a checkpoint compares is the description."""
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=3.0)
    for name, alike in (("constant", True), ("constant/epoch", True), ("linear", False), ("step/epoch", False)):
        short, long = (Schedule(name, optimizer, epochs, 10 * epochs).description for epochs in (2, 3))
        assert (short == long) == alike


def test_a_method_without_a_learning_rate_has_the_constant_schedule_only() -> None:
    Schedule("constant", None, 2, 10).set(3)
    with pytest.raises(ValueError, match="no learning rate that the schedule 'cosine' could move"):
        Schedule("cosine", None, 2, 10)
