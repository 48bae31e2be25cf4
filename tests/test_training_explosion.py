"""A finite loss that explodes ends a run, with the advice that fits; one that rises for another reason does not."""

from pathlib import Path
from typing import Any

import pytest
import torch
from loop_cases import Recorder, numbered
from torch import Tensor, nn

from altmin import Diverged, methods, models
from altmin.training import EachBatch, fit
from altmin.training.explosion import LossWatch

Samples = tuple[Tensor, Tensor]


def friedman(n: int = 400) -> Samples:
    """Friedman's first function of ten inputs, standardised, and raw targets of mean 14 and deviation 5."""
    x = torch.rand(n, 10, generator=torch.Generator().manual_seed(0))
    y = 10 * torch.sin(torch.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return (x - 0.5) * 12**0.5, y[:, None]


def regressor(name: str, **options: Any) -> methods.Method:
    torch.manual_seed(0)
    return methods.create(name, models.mlp(10, (50, 50), 1), loss=nn.MSELoss(), **options)


def classifier(name: str, **options: Any) -> methods.Method:
    torch.manual_seed(0)
    return methods.create(name, models.mlp(10, (50, 50), 2), **options)


def standard() -> Samples:
    x, y = friedman()
    return x, (y - y.mean()) / y.std()


def labels() -> Samples:
    x, y = friedman()
    return x, (y[:, 0] > 14).long()


@pytest.mark.parametrize(
    "losses, scale",
    [
        ([1e-8, 1e-5, 1e-4, 0.1, 900.0, 900.0], 0.0),
        ([2.3, 0.01, 0.001, 30.0, 40.0, 0.01, 30.0], 0.0),
        ([0.0, 5.0, 0.0, 30.0, 1e4, 3.0], 0.0),
        ([-3.0, -900.0, -5.0, 800.0, 2.0], 0.0),
        ([-2000.0, 1e5, 1e5], 0.0),
        ([1.0, 5e5, 0.3, 8e5, 0.3, 7e5], 0.0),
        ([0.1, 1e9, 0.1, 1e6, 1e6], 1e9),
    ],
    ids=["tiny", "a new task", "first 0", "negative", "large negative", "spikes", "outliers of the data"],
)
def test_no_alarm_for(losses: list[float], scale: float) -> None:
    watch = LossWatch()
    assert not any(watch.explodes(loss, lambda: scale) for loss in losses)


@pytest.mark.parametrize(
    "losses, scale",
    [
        ([0.5, 0.4, 2e3, 2e3], 0.0),
        ([200.0, 5e7, 5e4], 0.0),
        ([1.0, 1e7], 0.0),
        ([-5.0, -9.0, 6e3, 6e3], 0.0),
        ([1.0, 2e5, 2e5], 100.0),
    ],
)
def test_the_last_of_these_losses_is_an_explosion(losses: list[float], scale: float) -> None:
    watch = LossWatch()
    assert [watch.explodes(loss, lambda: scale) for loss in losses] == [False] * (len(losses) - 1) + [True]


def wide() -> Samples:
    x, y = standard()
    return 100 * x + 300, y


TARGETS = (
    r"standardise the targets, whose root mean square is 1\d\.\d, and scale outputs back, or lower the rate of the"
)
INPUTS = r"standardise the inputs, whose root mean square is 3\d\d, or lower the learning rate, 0.1"
ADVICE: dict[str, tuple[Any, str, dict[str, Any], Any, str]] = {
    "raw targets": (regressor, "am-mem-fitted", {}, friedman, f"{TARGETS} memory, 300"),
    "raw targets, offline": (regressor, "am-mem-fitted-offline", {}, friedman, f"{TARGETS} memory, 100"),
    "raw inputs": (regressor, "sgd", {}, wide, INPUTS),
    **{
        f"a rate a thousand times too large, {name}, {made.__name__}": (
            *(made, name, {"lr": 10.0}, data),
            "lower the learning rate, 10",
        )
        for name in ("adam", "am-adam")
        for made, data in ((regressor, standard), (classifier, labels))
    },
}


@pytest.mark.parametrize("case", ADVICE)
def test_an_explosion_says_what_helps(case: str) -> None:
    made, name, options, data, words = ADVICE[case]
    with pytest.raises(Diverged, match=rf"epoch \d+, batch \d+ of 20 exploded to [\d.e+]+; {words}$"):
        fit(made(name, **options), data(), epochs=20, batch_size=20)


def sparse() -> Samples:
    """Targets of which one in ten is 200, the others 0."""
    x, y = friedman()
    return x, 200.0 * (torch.arange(len(y)) % 10 == 9).float()[:, None]


def large() -> Samples:
    """Labels, and inputs so large that the first loss is 0 or hundreds."""
    x, y = labels()
    return 1000 * x + 3000, y


@pytest.mark.parametrize("made, data, seed", [(regressor, sparse, 2), (classifier, large, 1)])
@pytest.mark.parametrize("name", ["am-adam"])
def test_single_samples_whose_losses_differ_by_orders_do_not_alarm(name: str, made: Any, data: Any, seed: int) -> None:
    losses: list[float] = []
    callbacks = [EachBatch(lambda at: losses.append(at.train_loss * at.batch - sum(losses)))]
    fit(made(name), data(), epochs=1, batch_size=1, seed=seed, callbacks=callbacks)
    assert len(losses) == 400
    assert max(losses) > 1e3 * max(1.0, losses[0])


CALM = [1.0, 1.0, 1.0, 5e6, 5e6]


def test_a_run_that_resumes_explodes_where_the_undisturbed_one_does(tmp_path: Path) -> None:
    settings: Any = {"epochs": 2, "batch_size": 4, "schedule": "constant"}

    def run(losses: list[float], path: Path, **more: Any) -> str:
        with pytest.raises(Diverged) as caught:
            fit(Recorder(losses=losses), numbered(12), **settings, checkpoint=path, **more)
        return str(caught.value)

    whole = run(CALM.copy(), tmp_path / "whole")
    assert "the loss in epoch 2, batch 2 of 3 exploded to 5e+06; lower the learning rate, 0.5; the last" in whole
    path = tmp_path / "run"
    stop: Any = {"checkpoint": path, "checkpoint_every": 1, "callbacks": [EachBatch(lambda at: at.batch == 4)]}
    fit(Recorder(losses=CALM.copy()), numbered(12), **settings, **stop)
    assert run([5e6], path, resume=True) == whole.replace("whole", "run")
