"""Schedules move a learning rate by batch or by epoch and put it back; torch's give the rates that they give alone."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from loop_cases import Recorder, Stop, numbered, stop_at
from torch import nn
from torch.optim import lr_scheduler as torchs

from altmin import methods, models
from altmin.common.errors import Diverged
from altmin.training import SCHEDULES, fit
from altmin.training.config import RunConfig
from altmin.training.schedule import Schedule, rates_of


def test_schedules_move_the_rate_by_batch_or_by_epoch_and_put_it_back() -> None:
    def rates(schedule: str, warmup: int = 0) -> list[float]:
        recorder = Recorder()
        fit(recorder, numbered(4), epochs=4, batch_size=2, schedule=schedule, warmup=warmup)
        assert recorder.optimizer.param_groups[0]["lr"] == 0.5
        return recorder.rates

    assert rates("constant") == [0.5] * 8
    assert rates("linear") == pytest.approx([0.5 * (1 - i / 8) for i in range(8)])
    assert rates("linear/epoch") == pytest.approx([0.5, 0.5, 0.375, 0.375, 0.25, 0.25, 0.125, 0.125])
    assert rates("step") == pytest.approx([0.5] * 4 + [0.05] * 2 + [0.005] * 2)
    assert rates("cosine")[4] == pytest.approx(0.25)
    assert rates("one-cycle")[0] == pytest.approx(0.5 / 25)
    assert rates("constant", 3) == pytest.approx([0.125, 0.25, 0.375] + [0.5] * 5)
    assert rates("linear", 4) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.375, 0.25, 0.125])
    assert rates("linear/epoch", 1) == pytest.approx([0.25, 0.25, 0.5, 0.5, 1 / 3, 1 / 3, 1 / 6, 1 / 6])
    falling = [0.5] * 5 + [0.5 * (1 - i / 8) / 0.4 for i in (5, 6, 7)]
    assert rates("auto") == rates("decay") == pytest.approx(falling)
    recorder = Recorder(losses=[1.0, 1.0, math.nan])
    with pytest.raises(Diverged):
        fit(recorder, numbered(9), epochs=3, batch_size=4, schedule="linear")
    assert recorder.optimizer.param_groups[0]["lr"] == 0.5


def test_a_run_over_batches_without_number_decays_by_epoch() -> None:
    recorder = Recorder()
    fit(recorder, (batch for batch in [numbered(2)]), epochs=1)
    assert recorder.rates == [0.5]
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    rates, seen = rates_of(RunConfig(epochs=5), optimizer, None, ()), []
    for epoch in range(5):
        rates.move(100, epoch)
        seen.append(optimizer.param_groups[0]["lr"])
    assert seen == pytest.approx([1, 1, 1, 1, 0.5])


@pytest.mark.parametrize("name", ["am-adam-offline", "am-mem-offline", "am-adam-offline-printed"])
def test_an_offline_method_moves_its_weights_in_every_epoch_by_default(name: str) -> None:
    torch.manual_seed(0)
    method = methods.create(name, models.mlp(6, (5,), 3), lr=0.01)
    before = [p.clone() for p in method.model.parameters()]
    fit(method, (torch.randn(60, 6), torch.arange(60) % 3), epochs=1, batch_size=20)
    assert not any(map(torch.equal, before, method.model.parameters()))


def test_a_cycle_rises_for_three_tenths_of_the_run_and_falls_for_the_rest() -> None:
    """Against torch's, whose steps are counted a little differently: of 10,000 that makes less than 0.001."""
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    theirs = torchs.OneCycleLR(optimizer, max_lr=1.0, total_steps=10_000, cycle_momentum=False)
    for step in range(10_000):
        assert SCHEDULES["one-cycle"](step / 10_000) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-3)
        optimizer.step()
        if step < 9_999:
            theirs.step()


def test_every_group_keeps_its_own_rate() -> None:
    first, second = nn.Linear(1, 1), nn.Linear(1, 1)
    groups = [{"params": first.parameters(), "lr": 1.0}, {"params": second.parameters(), "lr": torch.tensor(2.0)}]
    optimizer = torch.optim.SGD(groups)
    tensor = optimizer.param_groups[1]["lr"]
    schedule = Schedule(RunConfig(schedule="linear/epoch", epochs=4), optimizer, per_epoch=10)
    for move, expected in (
        (lambda: schedule.move(20, 0), [1, 2]),
        (lambda: schedule.move(29, 1), [0.75, 1.5]),
        (schedule.end, [1, 2]),
    ):
        move()
        assert [float(group["lr"]) for group in optimizer.param_groups] == expected
    assert optimizer.param_groups[1]["lr"] is tensor, "a recorded step reads that tensor"


def test_a_method_without_a_learning_rate_has_the_constant_schedule_only() -> None:
    Schedule(RunConfig(epochs=2, schedule="constant"), None, 5).move(3, 0)
    rates_of(RunConfig(epochs=2), None, 5, ()).move(3, 0)
    for run in (RunConfig(schedule="cosine"), RunConfig(schedule="constant", warmup=2, epochs=3)):
        with pytest.raises(ValueError, match="no learning rate"):
            Schedule(run, None, 5)


def warm_then_cosine(optimizer: Any) -> Any:
    warm = torchs.LinearLR(optimizer, 0.1, total_iters=3)
    return torchs.SequentialLR(optimizer, [warm, torchs.CosineAnnealingLR(optimizer, 9)], [3])


Make = Callable[[Any], Any]
SCHEDULERS: dict[str, Make] = {
    "step": partial(torchs.StepLR, step_size=2, gamma=0.5),
    "milestones": partial(torchs.MultiStepLR, milestones=[1, 3], gamma=0.1),
    "one cycle": partial(torchs.OneCycleLR, max_lr=1.0, total_steps=9),
    "a function": partial(torchs.LambdaLR, lr_lambda=lambda t: 1 / (1 + t)),
    "in turn": warm_then_cosine,
}


def torch_alone(make: Make) -> list[float]:
    """The rates before every batch of a loop by hand."""
    optimizer, rates = Recorder().optimizer, []
    scheduler = make(optimizer)
    for _ in range(8):
        for _ in range(2):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_rates_are_those_of_torch_alone_also_of_a_run_that_goes_on(name: str, tmp_path: Path) -> None:
    expected = torch_alone(SCHEDULERS[name])
    assert len(set(expected)) > 1
    settings: dict[str, Any] = {"epochs": 8, "batch_size": 6, "scheduler": SCHEDULERS[name]}
    kept = {**settings, "checkpoint": tmp_path / "run"}
    whole, first, second = Recorder(), Recorder(), Recorder()
    fit(whole, numbered(12), **settings)
    with pytest.raises(Stop):
        fit(first, numbered(12), **kept, callbacks=stop_at(9))
    fit(second, numbered(12), **kept, resume=True)
    assert whole.rates == pytest.approx(expected, rel=1e-12)
    assert [*first.rates[:8], *second.rates] == pytest.approx(expected, rel=1e-12)
    with pytest.raises(ValueError, match="its schedule is"):
        fit(Recorder(), numbered(12), **{**kept, "scheduler": None}, resume=True)


def plateau(optimizer: Any, mode: str = "min") -> Any:
    return torchs.ReduceLROnPlateau(optimizer, mode, factor=0.5, patience=1)


def test_a_plateau_is_one_of_what_is_measured() -> None:
    losses = [5.0, 4.0, 4.0, 4.0, 4.0, 4.0, 3.0]
    recorder = Recorder(losses=list(losses))
    fit(recorder, numbered(4), epochs=7, batch_size=4, scheduler=plateau)
    assert recorder.rates == [0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125]
    scores, recorder = iter([0.1, 0.3, 0.3, 0.2, 0.9]), Recorder()
    metrics = {"score": lambda output, y: next(scores)}
    settings: dict[str, Any] = {"epochs": 5, "batch_size": 4, "metrics": metrics}
    fit(recorder, numbered(4), numbered(4), scheduler=partial(plateau, mode="max"), **settings)
    assert recorder.rates == [0.5, 0.5, 0.5, 0.5, 0.25]


def test_a_scheduler_that_the_caller_made_goes_on_in_the_next_run_and_another_optimizers_is_refused() -> None:
    recorder = Recorder()
    scheduler = SCHEDULERS["step"](recorder.optimizer)
    for _ in range(2):
        fit(recorder, numbered(12), epochs=4, batch_size=6, scheduler=scheduler)
    assert recorder.rates == pytest.approx(torch_alone(SCHEDULERS["step"]))
    with pytest.raises(ValueError, match="another optimizer"):
        fit(Recorder(), numbered(12), epochs=4, batch_size=6, scheduler=scheduler)
