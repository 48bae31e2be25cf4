"""Schedules move a learning rate by batch or by epoch, and put it back."""

import contextlib
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from test_training_loop import Recorder, numbered
from torch import nn

from altmin import methods
from altmin.training import SCHEDULES, EachBatch, epoch_order, fit
from altmin.training.schedule import Schedule


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
    assert {name for name, schedule in SCHEDULES.items() if schedule(0) != 1} == {"one-cycle"}


def test_a_cycle_rises_for_three_tenths_of_the_run_and_falls_for_the_rest() -> None:
    """Against torch's, whose steps are counted a little differently: of 10,000 that makes less than 0.001."""
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10_000, cycle_momentum=False)
    for step in range(10_000):
        assert SCHEDULES["one-cycle"](step / 10_000) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-3)
        optimizer.step()
        if step < 9_999:
            theirs.step()
    assert SCHEDULES["one-cycle"](0.15) == pytest.approx((1 + 1 / 25) / 2)
    assert SCHEDULES["one-cycle"](0.3) == 1
    assert SCHEDULES["one-cycle"](1) == pytest.approx(1 / 25e4)


@pytest.mark.parametrize("method", ["am-adam", "am-sgd", "adam", "sgd"])
def test_a_warm_up_and_a_cosine_are_those_of_a_loop_with_torchs_scheduler(method: str) -> None:
    x, y = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3

    def learner() -> Any:
        torch.manual_seed(0)
        return methods.create(method, nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), lr=0.02)

    ours, by_hand = learner(), learner()
    fit(ours, (x, y), epochs=2, batch_size=5, schedule="cosine", warmup=4)
    rates = [(s + 1) / 5 for s in range(4)] + [(1 + math.cos(math.pi * s / 8)) / 2 for s in range(8)]
    scheduler = torch.optim.lr_scheduler.LambdaLR(by_hand.optimizer, lambda s: rates[min(s, 11)])
    for epoch in range(2):
        for rows in epoch_order(30, 0, epoch).split(5):
            by_hand.step(x[rows], y[rows])
            scheduler.step()
        by_hand.end_epoch()
    torch.testing.assert_close([*ours.model.parameters()], [*by_hand.model.parameters()], rtol=1e-5, atol=1e-7)


def test_a_warm_up_counts_what_its_schedule_counts() -> None:
    def rates(schedule: str, warmup: int) -> list[float]:
        recorder = Recorder()
        fit(recorder, numbered(4), epochs=4, batch_size=2, schedule=schedule, warmup=warmup)
        assert recorder.optimizer.param_groups[0]["lr"] == 0.5
        return recorder.rates

    assert rates("constant", 3) == pytest.approx([0.125, 0.25, 0.375] + [0.5] * 5)
    assert rates("linear", 4) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.375, 0.25, 0.125])
    assert rates("linear/epoch", 1) == pytest.approx([0.25, 0.25, 0.5, 0.5, 1 / 3, 1 / 3, 1 / 6, 1 / 6])


@pytest.mark.parametrize("schedule, warmup", [("cosine", 5), ("one-cycle", 0), ("cosine/epoch", 1), ("constant", 9)])
def test_a_run_that_goes_on_has_the_rates_of_one_that_never_stopped(tmp_path: Path, schedule: str, warmup: int) -> None:
    settings: dict[str, Any] = {"epochs": 4, "batch_size": 2, "schedule": schedule, "warmup": warmup}
    whole, first, second = Recorder(), Recorder(), Recorder()
    fit(whole, numbered(8), **settings)
    for recorder, resume in ((first, False), (second, True)):

        def stop(at: Any) -> None:
            if not resume and at.batch == 7:  # noqa: B023
                raise InterruptedError

        with contextlib.suppress(InterruptedError):
            kept = {"checkpoint": tmp_path / "run", "checkpoint_every": 1, "resume": resume}
            fit(recorder, numbered(8), **settings, **kept, callbacks=[EachBatch(stop)])
        assert recorder.optimizer.param_groups[0]["lr"] == 0.5
    assert [*first.rates, *second.rates] == whole.rates
    other = {**settings, "schedule": "cosine", "warmup": 2}
    with pytest.raises(ValueError, match=r"its schedule is .*, here it is "):
        fit(Recorder(), numbered(8), **other, checkpoint=tmp_path / "run", resume=True)


@pytest.mark.parametrize("method", ["am-adam", "adam"])
def test_a_run_that_stopped_in_its_warm_up_goes_on_from_its_start(tmp_path: Path, method: str) -> None:
    """The first checkpoint holds the rate of the first batch."""

    def learner() -> Any:
        torch.manual_seed(0)
        return methods.create(method, nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)))

    def stop(at: Any) -> None:
        raise InterruptedError

    samples = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 5, "schedule": "cosine", "warmup": 4}
    whole, stopped = learner(), learner()
    fit(whole, samples, **settings)
    with pytest.raises(InterruptedError):
        fit(stopped, samples, **settings, checkpoint=tmp_path / "run", callbacks=[EachBatch(stop)])
    assert stopped.optimizer.param_groups[0]["lr"] == whole.optimizer.param_groups[0]["lr"] == 1e-3
    fit(stopped, samples, **settings, checkpoint=tmp_path / "run", resume=True)
    assert all(map(torch.equal, whole.model.parameters(), stopped.model.parameters()))


@pytest.mark.parametrize(
    "schedule, warmup, words",
    [
        ("cosine", 8, r"a warm-up must be shorter than the run, which has 8 batches, given warmup=8"),
        ("cosine/epoch", 4, r"which has 4 epochs, given warmup=4"),
        ("one-cycle", 2, r"'one-cycle' has a warm-up of its own"),
        ("cosine", -1, r"warmup of fit must be a whole number of at least 0, given -1"),
        ("cosine", 1.5, r"warmup of fit must be a whole number of at least 0, given 1.5"),
        ("one-cycel", 0, r"unknown schedule 'one-cycel'; did you mean 'one-cycle'"),
    ],
)
def test_a_warm_up_that_cannot_be_is_refused(schedule: str, warmup: Any, words: str) -> None:
    recorder = Recorder()
    with pytest.raises(ValueError, match=words):
        fit(recorder, numbered(4), epochs=4, batch_size=2, schedule=schedule, warmup=warmup)
    assert recorder.rates == []
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
    plan.begin(0, 0)
    assert [float(group["lr"]) for group in optimizer.param_groups] == [1, 2]


def test_only_a_run_at_a_constant_rate_may_be_prolonged() -> None:
    """What a checkpoint compares is the description."""
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=3.0)
    for name, alike in (("constant", True), ("constant/epoch", True), ("linear", False), ("step/epoch", False)):
        short, long = (Schedule(name, optimizer, epochs, 10 * epochs).description for epochs in (2, 3))
        assert (short == long) == alike


def test_a_method_without_a_learning_rate_has_the_constant_schedule_only() -> None:
    Schedule("constant", None, 2, 10).after_batch(3)
    with pytest.raises(ValueError, match="no learning rate that the schedule 'cosine' could move"):
        Schedule("cosine", None, 2, 10)
    with pytest.raises(ValueError, match="use schedule='constant' without warmup"):
        Schedule("constant", None, 2, 10, warmup=2)
