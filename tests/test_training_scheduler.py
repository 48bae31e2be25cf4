"""torch's schedulers in a run give the rates that they give without it, also to a run that goes on."""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from loop_cases import learner, samples, weights
from test_training_loop import Recorder, numbered
from torch.optim import lr_scheduler as torchs

from altmin.training import EachBatch, fit

BATCHES, EPOCHS = 3, 4
Make = Callable[[Any], Any]


def warm_then_cosine(optimizer: Any) -> Any:
    warm = torchs.LinearLR(optimizer, 0.1, total_iters=3)
    return torchs.SequentialLR(optimizer, [warm, torchs.CosineAnnealingLR(optimizer, 9)], [3])


def warm_then_milestones(optimizer: Any) -> Any:
    """The second one begins after the batch at which a run is stopped below."""
    warm = torchs.LinearLR(optimizer, 0.1, total_iters=5)
    return torchs.SequentialLR(optimizer, [warm, torchs.MultiStepLR(optimizer, [1, 2], 0.5)], [8])


SCHEDULERS: dict[str, Make] = {
    "step": partial(torchs.StepLR, step_size=2, gamma=0.5),
    "milestones": partial(torchs.MultiStepLR, milestones=[1, 3], gamma=0.1),
    "exponential": partial(torchs.ExponentialLR, gamma=0.9),
    "cosine": partial(torchs.CosineAnnealingLR, T_max=7),
    "restarts": partial(torchs.CosineAnnealingWarmRestarts, T_0=2),
    "one cycle": partial(torchs.OneCycleLR, max_lr=1.0, total_steps=BATCHES * EPOCHS + 1),
    "a function": partial(torchs.LambdaLR, lr_lambda=lambda t: 1 / (1 + t)),
    "in turn": warm_then_cosine,
    "milestones in turn": warm_then_milestones,
}


def torch_alone(make: Make, every: str, optimizer: Any) -> list[float]:
    """The rates before every batch of a loop by hand."""
    scheduler, rates = make(optimizer), []
    for _ in range(EPOCHS):
        for _ in range(BATCHES):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if every == "batch":
                scheduler.step()
        if every == "epoch":
            scheduler.step()
    return rates


class Stepping(Recorder):
    """As a method does, it makes steps of its optimizer."""

    def step(self, x: Any, y: Any) -> Any:
        found = super().step(x, y)
        self.optimizer.step()
        return found


@pytest.mark.parametrize("every", ["epoch", "batch"])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_rates_are_those_of_torch_alone(name: str, every: str) -> None:
    recorder = Stepping()
    before = copy.deepcopy([{k: v for k, v in g.items() if k != "params"} for g in recorder.optimizer.param_groups])
    settings: dict[str, Any] = {"epochs": EPOCHS, "batch_size": 4, "scheduler_every": every}
    fit(recorder, numbered(12), scheduler=SCHEDULERS[name], **settings)
    expected = torch_alone(SCHEDULERS[name], every, Recorder().optimizer)
    assert recorder.rates == pytest.approx(expected, rel=1e-12)
    assert len(set(expected)) > 1
    after = [{k: v for k, v in g.items() if k != "params"} for g in recorder.optimizer.param_groups]
    assert after == before, "the optimizer is as before the run"


@pytest.mark.parametrize("name, every", [*((name, "batch") for name in SCHEDULERS), ("step", "epoch")])
def test_a_run_that_goes_on_has_the_rates_of_one_that_never_stopped(name: str, every: str, tmp_path: Path) -> None:
    class Kept(Stepping):
        def state_dict(self) -> dict[str, Any]:
            return {"optimizer": self.optimizer.state_dict()}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.optimizer.load_state_dict(state["optimizer"])

    def fail(progress: Any) -> None:
        if progress.batch == 7:
            raise ZeroDivisionError

    settings: dict[str, Any] = {"epochs": EPOCHS, "batch_size": 4, "scheduler_every": every}
    kept = {**settings, "checkpoint": tmp_path / "run", "checkpoint_every": 1}
    first, second = Kept(), Kept()
    with pytest.raises(ZeroDivisionError):
        fit(first, numbered(12), scheduler=SCHEDULERS[name], callbacks=[EachBatch(fail)], **kept)
    fit(second, numbered(12), scheduler=SCHEDULERS[name], resume=True, **kept)
    expected = torch_alone(SCHEDULERS[name], every, Recorder().optimizer)
    assert [*first.rates, *second.rates] == pytest.approx(expected, rel=1e-12)
    with pytest.raises(ValueError, match=r"its schedule is .*, here it is constant"):
        fit(Kept(), numbered(12), **{**kept, "scheduler_every": "epoch"}, resume=True)


def test_options_that_a_run_itself_has_set_stay() -> None:
    """As capturing a step does."""
    method = learner("adam")

    def capture(progress: Any) -> None:
        method.optimizer.param_groups[0]["capturable"] = True

    make = partial(torchs.OneCycleLR, max_lr=1.0, total_steps=9)
    fit(method, samples(), epochs=1, batch_size=50, scheduler=make, callbacks=capture)
    group = method.optimizer.param_groups[0]
    assert group["capturable"] is True
    assert group["betas"] == (0.9, 0.999)
    assert group["lr"] == 0.01


@pytest.mark.parametrize("method", ["am-adam", "am-sgd", "adam"])
def test_a_method_with_a_scheduler_trains_as_in_a_loop_of_ones_own(method: str) -> None:
    from altmin.training import epoch_order

    make = partial(torchs.StepLR, step_size=2, gamma=0.3)
    (x, y), ours, by_hand = samples(), learner(method), learner(method)
    fit(ours, (x, y), epochs=3, batch_size=20, scheduler=make, scheduler_every="batch")
    scheduler = make(by_hand.optimizer)
    for epoch in range(3):
        for rows in epoch_order(50, 0, epoch).split(20):
            by_hand.step(x[rows], y[rows])
            scheduler.step()
        by_hand.end_epoch()
    assert all(map(torch.equal, weights(ours), weights(by_hand)))


def plateau(optimizer: Any, mode: str = "min") -> Any:
    return torchs.ReduceLROnPlateau(optimizer, mode, factor=0.5, patience=1)


def test_a_plateau_is_one_of_what_is_measured() -> None:
    losses = [5.0, 4.0, 4.0, 4.0, 4.0, 4.0, 3.0]
    recorder, alone = Recorder(losses=list(losses)), Recorder()
    fit(recorder, numbered(4), epochs=7, batch_size=4, scheduler=plateau)
    scheduler, rates = plateau(alone.optimizer), []
    for loss in losses:
        rates.append(alone.optimizer.param_groups[0]["lr"])
        scheduler.step(loss)
    assert recorder.rates == rates == [0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125]
    scores, recorder = iter([0.1, 0.3, 0.3, 0.2, 0.9]), Recorder()
    settings: dict[str, Any] = {"epochs": 5, "batch_size": 4, "metrics": {"accuracy": lambda o, y: next(scores)}}
    fit(recorder, numbered(4), numbered(4), scheduler=partial(plateau, mode="max"), **settings)
    assert recorder.rates == [0.5, 0.5, 0.5, 0.5, 0.25]


def test_a_scheduler_that_the_caller_made_goes_on_in_the_next_run() -> None:
    recorder = Stepping()
    scheduler = torchs.StepLR(recorder.optimizer, 1, gamma=0.5)
    for _ in range(2):
        fit(recorder, numbered(4), epochs=2, batch_size=4, scheduler=scheduler)
    assert recorder.rates == [0.5, 0.25, 0.125, 0.0625]
    assert recorder.optimizer.param_groups[0]["lr"] == 0.03125


@pytest.mark.parametrize(
    "settings, error, words",
    [
        (
            {"scheduler": SCHEDULERS["step"], "schedule": "cosine"},
            ValueError,
            "a schedule and a torch scheduler would bo",
        ),
        (
            {"scheduler": SCHEDULERS["step"], "warmup": 2},
            ValueError,
            "a schedule and a torch scheduler would both move",
        ),
        (
            {"scheduler": SCHEDULERS["step"], "scheduler_every": "hour"},
            ValueError,
            'is "epoch" or "batch", given \'hour\'',
        ),
        ({"scheduler": "cosine"}, TypeError, r"scheduler of fit is torch's, or a function .*, given 'cosine'"),
        ({"scheduler": lambda optimizer: None}, TypeError, "scheduler of fit is torch's, or a function"),
        ({"scheduler": lambda _: torchs.StepLR(Recorder().optimizer, 1)}, ValueError, "moves another optimizer; build"),
        ({"scheduler": partial(plateau, mode="max")}, ValueError, r'gets train_loss here, of which less .* mode="min"'),
        ({"scheduler": plateau, "scheduler_every": "batch"}, ValueError, "ReduceLROnPlateau looks at what an epoch"),
        (
            {"scheduler": SCHEDULERS["in turn"], "checkpoint_every": 3},
            ValueError,
            "checkpoint_every needs a checkpoint",
        ),
        ({"scheduler": SCHEDULERS["in turn"], "resume": True}, ValueError, "say from which checkpoint file"),
    ],
)
def test_what_no_scheduler_can_do_is_refused_and_the_optimizer_stays_as_it_was(
    settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    recorder = Recorder()
    before = {k: v for k, v in recorder.optimizer.param_groups[0].items() if k != "params"}
    with pytest.raises(error, match=words):
        fit(recorder, numbered(12), epochs=4, batch_size=4, **settings)
    assert recorder.seen == []
    assert {k: v for k, v in recorder.optimizer.param_groups[0].items() if k != "params"} == before


def test_a_method_without_a_rate_takes_no_scheduler() -> None:
    recorder: Any = Recorder()
    recorder.optimizer = None
    with pytest.raises(ValueError, match="this method has no torch optimizer whose rates a scheduler could move"):
        fit(recorder, numbered(4), epochs=1, batch_size=4, scheduler=SCHEDULERS["step"])
