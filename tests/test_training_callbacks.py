"""Callbacks hear of every epoch, stop a run without an error, and go on from a checkpoint as if it never stopped."""

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loop_cases import Recorder, Stop, learner, numbered, outcome, samples, stop_at
from rich.console import Console
from torch import Tensor, nn

from altmin import Ensemble, methods
from altmin.training import (
    EMA,
    BestWeights,
    EachBatch,
    EarlyStopping,
    Progress,
    ProgressBar,
    accuracy,
    epoch_order,
    fit,
    fit_ensemble,
)


def run(losses: list[float], *callbacks: Any, **settings: Any) -> Any:
    """The history of a run of one batch an epoch with these losses."""
    how = {"epochs": len(losses), "batch_size": 4, "callbacks": callbacks, **settings}
    return fit(Recorder(losses=list(losses)), numbered(4), **how)


@pytest.mark.parametrize("answer, epochs", [(True, 2), (np.bool_(True), 2), (False, 4), (None, 4), (1, 4)])
def test_the_word_true_stops_a_run_and_nothing_else_does(answer: Any, epochs: int) -> None:
    history = run([1.0, 2.0, 3.0, 4.0], lambda p: answer if p.epoch == 2 else None)
    assert len(history.epochs) == epochs


def test_a_stop_after_an_epochs_last_batch_leaves_its_row() -> None:
    recorder = Recorder()
    history = fit(recorder, numbered(8), epochs=3, batch_size=4, callbacks=[EachBatch(lambda p: p.batch == 2)])
    assert [row["train_loss"] for row in history.epochs] == [1.5]
    assert recorder.ends == [2]


class Noted:
    """An object with every method, which writes down what it is called with."""

    def __init__(self) -> None:
        self.said: list[str] = []
        for name in ("on_start", "on_batch_end", "on_epoch_end", "on_end", "close"):
            setattr(self, name, lambda *progress, name=name: self.said.append(name))


def test_the_methods_of_an_object_are_called_in_their_order_and_it_is_closed_whatever_ends_the_run() -> None:
    noted, failing = Noted(), Noted()
    fit(Recorder(), numbered(8), epochs=2, batch_size=4, callbacks=[noted])
    epoch = ["on_batch_end", "on_batch_end", "on_epoch_end"]
    assert noted.said == ["on_start", *epoch, *epoch, "on_end", "close"]
    with pytest.raises(Stop):
        fit(Recorder(), numbered(8), epochs=2, batch_size=4, callbacks=[failing, stop_at(3)])
    assert failing.said[-2:] == ["on_batch_end", "close"]


@pytest.mark.parametrize(
    "losses, options, epochs, best",
    [
        ([5.0, 4.0, 4.5, 4.2, 1.0], {"patience": 2}, 4, 4.0),
        ([5.0, 4.0, 4.5, 3.5, 4.5, 4.0, 1.0], {"patience": 2}, 6, 3.5),
        ([5.0, 4.0, 4.0, 4.0], {"patience": 1}, 3, 4.0),
        ([5.0, 4.0, 3.75, 3.5, 3.25, 3.0], {"patience": 3, "min_delta": 0.5}, 6, 3.25),
        ([5.0, 4.0, 3.75, 3.5, 3.25], {"patience": 2, "min_delta": 0.5}, 4, 4.0),
        ([1.0, 2.0, 3.0, 3.0, 2.0, 9.0], {"patience": 2, "mode": "max"}, 5, 3.0),
    ],
)
def test_a_run_stops_when_so_many_epochs_in_a_row_were_no_better(
    losses: list[float], options: dict[str, Any], epochs: int, best: float
) -> None:
    stopping = EarlyStopping(**options)
    for _ in range(2):  # it begins anew with every run
        assert len(run(losses, stopping).epochs) == epochs
        assert stopping.best == best


def test_a_metric_that_is_no_number_is_never_better() -> None:
    values = iter([math.nan, 0.4, math.nan, 0.5, 0.1])
    stopping = EarlyStopping(2, mode="max")
    metrics = {"score": lambda output, y: next(values)}
    history = fit(learner(), samples(), samples(), epochs=5, batch_size=50, metrics=metrics, callbacks=stopping)
    assert (len(history.epochs), stopping.best) == (5, 0.5)


def test_the_model_ends_with_the_weights_of_its_best_epoch() -> None:
    states: list[dict[str, torch.Tensor]] = []
    accuracies: list[float] = []

    def note(progress: Progress) -> None:
        states.append({name: value.clone() for name, value in progress.model.state_dict().items()})
        accuracies.append(progress.row["test_accuracy"])

    method, best = learner("sgd", lr=3.0), BestWeights()
    fit(method, samples(), samples(30, 1), epochs=8, batch_size=20, callbacks=[note, best])
    first = accuracies.index(max(accuracies))
    assert first < 7, "the last epoch is the best one, and shows nothing"
    assert best.best_epoch == first + 1
    assert all(torch.equal(value, states[first][name]) for name, value in method.model.state_dict().items())


def test_a_run_that_goes_on_stops_and_keeps_what_it_would_have(tmp_path: Path) -> None:
    def callbacks() -> list[Any]:
        return [EarlyStopping(3, "test_loss"), BestWeights("test_loss"), EMA(0.2)]

    settings: dict[str, Any] = {"epochs": 30, "batch_size": 20, "metrics": ["accuracy", "loss"]}
    data = (samples(), samples(30, 1))
    whole = learner(lr=0.3)
    expected = outcome(whole, fit(whole, *data, **settings, callbacks=callbacks()))
    done = len(expected[1]["epochs"])
    assert 5 < done < 30
    kept = {**settings, "checkpoint": tmp_path / "run", "checkpoint_every": 2}
    for last in (5, 3 * done - 2):
        with pytest.raises(Stop):
            fit(learner(lr=0.3), *data, **kept, callbacks=[*callbacks(), stop_at(last)], resume=last > 5)
    for _ in range(2):  # the second finds a run that has stopped
        again = learner(lr=0.3, seed=4)
        assert outcome(again, fit(again, *data, **kept, callbacks=callbacks(), resume=True)) == expected


def test_all_members_hear_of_an_epoch_together_and_stop_together() -> None:
    ensemble = Ensemble([learner(seed=s) for s in (0, 1)])
    settings: dict[str, Any] = {"epochs": 5, "batch_size": 20}
    stop = [lambda p: p.epoch == 2 and p.histories[1].epochs[-1]["epoch"] == 2]
    histories = fit_ensemble(ensemble, samples(), samples(30, 1), **settings, callbacks=stop)
    assert [len(history.epochs) for history in histories] == [2, 2]
    with pytest.raises(ValueError, match="patience"):
        EarlyStopping(0)
    with pytest.raises(ValueError, match="EarlyStopping follows one model"):
        fit_ensemble(ensemble, samples(), **settings, callbacks=EarlyStopping())


# -- the average of the weights ---------------------------------------------------------------------------------------


def normed(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    return methods.create("am-adam", net, lr=0.05)


def by_hand(decay: float, epochs: int) -> tuple[Any, list[dict[str, Tensor]]]:
    """The method after a run without an average, and the average by its recursion in float64 after each epoch."""
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
    return method, ends


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9])
def test_the_average_is_that_of_its_recursion_and_is_measured_while_training_goes_on_without_it(decay: float) -> None:
    test = samples(40, 1)
    plain, ends = by_hand(decay, 3)
    method, last = normed(), list[dict[str, Tensor]]()
    note = EachBatch(lambda p: last.append({k: v.clone() for k, v in p.model.state_dict().items()}))
    settings = {"epochs": 3, "batch_size": 20, "eval_batches": [3, 6], "schedule": "constant"}
    history = fit(method, samples(), test, **settings, callbacks=[note, EMA(decay)])
    expected = []
    for state in ends:
        net = normed().model
        net.load_state_dict(state)
        expected.append(accuracy(net, test))
    assert [row["test_accuracy"] for row in history.epochs] == expected
    assert [row["test_accuracy"] for row in history.batches] == expected[:2]
    for name, value in plain.model.state_dict().items():
        assert torch.equal(last[-1][name], value)
    for name, value in method.model.state_dict().items():
        torch.testing.assert_close(value.double(), ends[-1][name].double(), rtol=1e-5, atol=1e-6)


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


def test_a_bar_counts_batches_on_a_terminal_and_is_quiet_in_a_pipe() -> None:
    for terminal in (True, False):
        out = io.StringIO()
        bar = ProgressBar("learning", Console(file=out, force_terminal=terminal, width=100))
        fit(Recorder(), numbered(8), epochs=2, batch_size=4, callbacks=[bar])
        assert ("learning" in out.getvalue() and "/4 loss" in out.getvalue()) == terminal
        assert terminal or out.getvalue() == ""
