"""Callbacks hear of every epoch, stop a run without an error, and go on from a checkpoint as if it never stopped."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loop_cases import learner, outcome, samples
from test_training_loop import Recorder, numbered

from altmin import Ensemble
from altmin.training import BestWeights, EachBatch, EarlyStopping, Progress, checkpoint, fit, fit_ensemble


def run(losses: list[float], *callbacks: Any, epochs: int | None = None, **settings: Any) -> Any:
    """A run of one batch an epoch with these losses, and its history."""
    recorder = Recorder(losses=list(losses))
    settings = {"epochs": epochs or len(losses), "batch_size": 4, "callbacks": callbacks, **settings}
    return recorder, fit(recorder, numbered(4), **settings)


def test_a_function_is_called_after_every_epoch_with_its_row() -> None:
    told: list[Progress] = []
    history = fit(learner(), samples(), samples(30, 1), epochs=3, batch_size=20, callbacks=told.append)
    assert [(p.epoch, p.epochs, p.batch, p.batches) for p in told] == [(1, 3, 3, 9), (2, 3, 6, 9), (3, 3, 9, 9)]
    assert history.epochs[-1] is told[-1].row
    assert told[-1].train_loss == history.epochs[-1]["train_loss"]
    assert told[-1].columns == ["test_accuracy"]


@pytest.mark.parametrize("said, epochs", [(True, 2), (np.bool_(True), 2), (False, 4), (None, 4), (1, 4)])
def test_the_word_true_stops_a_run_and_nothing_else_does(said: Any, epochs: int) -> None:
    _, history = run([1.0, 2.0, 3.0, 4.0], lambda p: said if p.epoch == 2 else None)
    assert len(history.epochs) == epochs


def test_a_run_can_stop_inside_an_epoch_and_go_on_from_there(tmp_path: Path) -> None:
    kept: dict[str, Any] = {"epochs": 3, "batch_size": 20, "checkpoint": tmp_path / "run"}
    whole, stopped, again = learner(dropout=0.3), learner(dropout=0.3), learner(seed=1)
    torch.manual_seed(0)
    expected = outcome(whole, fit(whole, samples(), epochs=3, batch_size=20))
    torch.manual_seed(0)
    history = fit(stopped, samples(), **kept, callbacks=[EachBatch(lambda p: p.batch == 5)])
    assert len(history.epochs) == 1
    at = checkpoint.load(tmp_path / "run")["at"]
    assert (at["epoch"], at["batch"]) == (1, 2)
    again = learner(dropout=0.3, seed=1)
    assert outcome(again, fit(again, samples(), **kept, resume=True)) == expected


def test_a_stop_after_an_epochs_last_batch_leaves_its_row() -> None:
    recorder = Recorder()
    history = fit(recorder, numbered(8), epochs=3, batch_size=4, callbacks=[EachBatch(lambda p: p.batch == 2)])
    assert [row["train_loss"] for row in history.epochs] == [1.5]
    assert recorder.ends == [2]


class Noted:
    """An object with every method, which writes down what it is called with."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def on_start(self, progress: Progress) -> None:
        self.said.append("start")

    def on_batch_end(self, progress: Progress) -> None:
        self.said.append(f"batch {progress.batch}")

    def on_epoch_end(self, progress: Progress) -> None:
        self.said.append(f"epoch {progress.epoch}")

    def on_end(self, progress: Progress) -> None:
        self.said.append("end")

    def close(self) -> None:
        self.said.append("close")


def test_the_methods_of_an_object_are_called_in_their_order() -> None:
    noted = Noted()
    fit(Recorder(), numbered(8), epochs=2, batch_size=4, callbacks=[noted])
    assert noted.said == ["start", "batch 1", "batch 2", "epoch 1", "batch 3", "batch 4", "epoch 2", "end", "close"]


def test_whatever_ends_a_run_callbacks_are_closed() -> None:
    noted = Noted()

    def fail(progress: Progress) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit(Recorder(), numbered(8), epochs=2, batch_size=4, callbacks=[noted, fail])
    assert noted.said[-2:] == ["epoch 1", "close"]


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
    _, history = run(losses, stopping)
    assert len(history.epochs) == epochs
    assert stopping.best == best


def test_early_stopping_begins_anew_with_every_run() -> None:
    stopping = EarlyStopping(1)
    assert [len(run([3.0, 2.0, 2.5, 1.0], stopping)[1].epochs) for _ in range(2)] == [3, 3]


def test_a_metric_that_is_no_number_is_never_better() -> None:
    values = iter([math.nan, 0.4, math.nan, 0.5, 0.1])
    stopping = EarlyStopping(2, mode="max")
    metrics = {"score": lambda output, y: next(values)}
    history = fit(learner(), samples(), samples(), epochs=5, batch_size=50, metrics=metrics, callbacks=stopping)
    assert len(history.epochs) == 5
    assert stopping.best == 0.5


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
        return [EarlyStopping(3, "test_loss"), BestWeights("test_loss")]

    settings: dict[str, Any] = {"epochs": 30, "batch_size": 20, "metrics": ["accuracy", "loss"]}
    data = (samples(), samples(30, 1))
    whole = learner(lr=0.3)
    expected = outcome(whole, fit(whole, *data, **settings, callbacks=callbacks()))
    done = len(expected[1]["epochs"])
    assert 5 < done < 30
    kept = {**settings, "checkpoint": tmp_path / "run"}
    for last in (2, done - 2):

        def fail(progress: Progress) -> None:
            if progress.epoch == last:  # noqa: B023
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fit(learner(lr=0.3), *data, **kept, callbacks=[*callbacks(), fail], resume=last > 2)
    for _ in range(2):  # the second finds a run that has stopped
        again = learner(lr=0.3, seed=4)
        assert outcome(again, fit(again, *data, **kept, callbacks=callbacks(), resume=True)) == expected
    for other in ([], [EarlyStopping(4, "test_loss"), BestWeights("test_loss")]):
        with pytest.raises(ValueError, match="its callbacks is EarlyStopping"):
            fit(learner(lr=0.3), *data, **kept, callbacks=other, resume=True)


def test_all_members_hear_of_an_epoch_together_and_stop_together() -> None:
    ensemble = Ensemble([learner(seed=s) for s in (0, 1)])
    histories = fit_ensemble(
        ensemble,
        samples(),
        samples(30, 1),
        epochs=5,
        batch_size=20,
        callbacks=lambda p: p.epoch == 2 and len(p.histories) == 2 and p.histories[1].epochs[-1]["epoch"] == 2,
    )
    assert [len(history.epochs) for history in histories] == [2, 2]


def test_what_follows_one_model_does_not_follow_an_ensemble() -> None:
    ensemble = Ensemble([learner(seed=s) for s in (0, 1)])
    with pytest.raises(ValueError, match="EarlyStopping follows one model, not an ensemble"):
        fit_ensemble(ensemble, samples(), epochs=1, batch_size=20, callbacks=EarlyStopping())


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: 3, TypeError, "a callback is a function or has methods such as on_epoch"),
        (lambda: EarlyStopping, TypeError, "a callback is a function or has methods"),
        (lambda: EarlyStopping(0), ValueError, "patience of EarlyStopping must be a whole number of at least 1"),
        (lambda: EarlyStopping(1, min_delta=-1), ValueError, "min_delta of EarlyStopping must be"),
        (lambda: BestWeights(mode="best"), ValueError, 'mode of BestWeights is "min" or "max", given \'best\''),
        (
            lambda: BestWeights("loss"),
            ValueError,
            "BestWeights watches 'loss', and an epoch's row has train_loss, test_",
        ),
        (
            lambda: BestWeights("test_score"),
            ValueError,
            "mode of BestWeights says whether more of test_score is better",
        ),
    ],
)
def test_a_callback_that_cannot_be_is_refused_before_anything_is_trained(
    make: Any, error: type[Exception], words: str
) -> None:
    recorder = Recorder()
    with pytest.raises(error, match=words):
        fit(
            recorder,
            numbered(4),
            numbered(4),
            epochs=1,
            batch_size=4,
            metrics={"score": lambda output, y: 1.0},
            callbacks=[make()],
        )
    assert recorder.seen == []
