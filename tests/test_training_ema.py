"""The average of the weights is that of its recursion, is what is measured and kept, and goes on from a checkpoint."""

from pathlib import Path
from typing import Any

import pytest
import torch
from loop_cases import outcome, samples
from torch import Tensor, nn

from altmin import methods
from altmin.training import EMA, BestWeights, EachBatch, Progress, accuracy, epoch_order, fit


def normed(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    return methods.create("am-adam", net, lr=0.05)


def by_hand(decay: float, epochs: int) -> tuple[Any, dict[str, Tensor], list[dict[str, Tensor]]]:
    """The method after a run without an average, the average by its recursion in float64, and the average after each
    epoch."""
    (x, y), method, ends = samples(), normed(), []
    average: dict[str, Tensor] = {}
    for epoch in range(epochs):
        for rows in epoch_order(50, 0, epoch).split(20):
            method.step(x[rows], y[rows])
            for name, w in method.model.state_dict().items():
                if name not in average or not w.is_floating_point():
                    average[name] = w.double().clone()
                else:
                    average[name] = decay * average[name] + (1 - decay) * w.double()
        method.end_epoch()
        ends.append(dict(average))
    return method, average, ends


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9])
def test_the_model_ends_with_the_average_of_the_recursion(decay: float) -> None:
    _, average, _ = by_hand(decay, 2)
    method = normed()
    fit(method, samples(), epochs=2, batch_size=20, callbacks=EMA(decay))
    for name, value in method.model.state_dict().items():
        torch.testing.assert_close(value.double(), average[name].double(), rtol=1e-5, atol=1e-6)


def test_evaluations_measure_the_average_and_training_goes_on_without_it() -> None:
    test = samples(40, 1)
    plain, _, ends = by_hand(0.9, 3)
    method, last = normed(), list[dict[str, Tensor]]()
    note = EachBatch(lambda p: last.append({k: v.clone() for k, v in p.model.state_dict().items()}))
    history = fit(method, samples(), test, epochs=3, batch_size=20, eval_batches=[3, 6], callbacks=[note, EMA(0.9)])
    found = []
    for state in ends:
        net = normed().model
        net.load_state_dict(state)
        found.append(accuracy(net, test))
    assert [row["test_accuracy"] for row in history.epochs] == found
    assert [row["test_accuracy"] for row in history.batches] == found[:2]
    for name, value in plain.model.state_dict().items():
        assert torch.equal(last[-1][name], value)


@pytest.mark.parametrize("best_first", [True, False])
def test_the_best_weights_are_the_averaged_ones(best_first: bool) -> None:
    seen: list[dict[str, Tensor]] = []
    values = iter([0.1, 0.3, 0.7, 0.2, 0.6])

    def note(p: Progress) -> None:
        seen.append({k: v.clone() for k, v in p.evaluated.state_dict().items()})

    method = normed()
    both = [BestWeights(), EMA(0.5)]
    callbacks = [*(both if best_first else both[::-1]), note]
    metrics = {"accuracy": lambda output, y: next(values)}
    fit(method, samples(), samples(30, 1), epochs=5, batch_size=20, callbacks=callbacks, metrics=metrics)
    assert all(torch.equal(value, seen[2][name]) for name, value in method.model.state_dict().items())
    assert not torch.equal(seen[2]["0.weight"], seen[4]["0.weight"])


@pytest.mark.parametrize("batch", [2, 5])
def test_a_run_that_goes_on_has_the_average_of_one_that_never_stopped(batch: int, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"epochs": 3, "batch_size": 20, "eval_batches": [4, 8]}
    data = (samples(), samples(30, 1))
    whole = normed()
    expected = outcome(whole, fit(whole, *data, **settings, callbacks=EMA(0.7)))
    kept = {**settings, "checkpoint": tmp_path / "run", "checkpoint_every": 1}

    def fail(progress: Progress) -> None:
        if progress.batch == batch:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit(normed(), *data, **kept, callbacks=[EMA(0.7), EachBatch(fail)])
    again = normed(seed=3)
    assert outcome(again, fit(again, *data, **kept, callbacks=EMA(0.7), resume=True)) == expected
    with pytest.raises(ValueError, match=r"its callbacks is EMA\(decay=0.7\), here it is EMA\(decay=0.8\)"):
        fit(normed(), *data, **kept, callbacks=EMA(0.8), resume=True)


def test_a_decay_that_never_forgets_is_refused() -> None:
    with pytest.raises(ValueError, match=r"decay of EMA must be below 1, given 1.0"):
        EMA(1.0)
    with pytest.raises(ValueError, match="decay of EMA must be a finite number of at least 0"):
        EMA(-0.1)
