"""Fitting again from the weights there are, what is printed meanwhile, and several fits at once."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from joblib import Parallel, delayed, parallel_config
from sklearn.base import clone
from sklearn.datasets import make_classification, make_friedman1
from sklearn.model_selection import GridSearchCV
from torch import nn

from altmin.sklearn import AltMinClassifier, AltMinRegressor

SMALL: dict[str, Any] = {"hidden": (8,), "epochs": 3, "batch_size": 16, "random_state": 0}
X, Y = make_classification(60, 6, n_informative=4, n_classes=3, random_state=0)
XR, YR = make_friedman1(60, 6, random_state=0)
BOTH = pytest.mark.parametrize(
    "make, X, y", [(AltMinClassifier, X, Y), (AltMinRegressor, XR, YR)], ids=["classifier", "regressor"]
)


def equal(a: Any, b: Any) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.module_.parameters(), b.module_.parameters(), strict=True))


# Fitting again


@BOTH
def test_a_warm_start_goes_on_from_the_weights_there_are(make: Any, X: Any, y: Any) -> None:
    cold, warm = make(**SMALL), make(**SMALL, warm_start=True)
    assert equal(cold.fit(X, y), warm.fit(X, y))
    first = warm.module_
    before = [p.detach().clone() for p in first.parameters()]
    assert equal(cold, cold.fit(X, y))
    warm.set_params(lr=0.0, weight_decay=0.0).fit(X, y)  # settings are those of now, and no step moves
    assert all(torch.equal(p, q) for p, q in zip(before, warm.module_.parameters(), strict=True))
    warm.set_params(lr="auto", epochs=40).fit(X, y)
    assert warm.n_iter_ == len(warm.loss_curve_) == 3 + 3 + 40
    assert warm.loss_curve_[6] < warm.loss_curve_[0]
    assert warm.loss_curve_[-1] < cold.loss_curve_[-1]
    assert all(torch.equal(p, q) for p, q in zip(before, first.parameters(), strict=True))  # a copy was trained


def test_a_warm_start_takes_the_steps_that_training_would_have_taken() -> None:
    """Plain gradient steps have no state, so that nothing but the weights and the random order goes on."""
    given = {**SMALL, "method": "sgd", "lr": 0.05, "options": {"momentum": 0.0}}
    twice = AltMinClassifier(**given, warm_start=True).fit(X, Y).fit(X, Y)
    assert equal(twice, AltMinClassifier(**{**given, "epochs": 6}).fit(X, Y))


@BOTH
def test_a_warm_start_keeps_the_scale_that_the_weights_know(make: Any, X: Any, y: Any) -> None:
    warm = make(**SMALL, warm_start=True).fit(X, y)
    inputs, predicted = warm.inputs_of(X), warm.predict(X)
    warm.set_params(lr=0.0, weight_decay=0.0).fit(X[:20] * 100, y[:20])
    assert torch.equal(warm.inputs_of(X), inputs)
    assert np.array_equal(warm.predict(X), predicted)


def test_a_warm_start_with_rows_held_back() -> None:
    warm = AltMinClassifier(**SMALL, warm_start=True, early_stopping=True, validation_fraction=0.3).fit(X, Y)
    assert len(warm.fit(X, Y).validation_curve_) == 6
    assert not hasattr(warm.set_params(early_stopping=False).fit(X, Y), "validation_curve_")


def test_a_warm_start_refuses_what_the_network_does_not_fit() -> None:
    warm = AltMinClassifier(**SMALL, warm_start=True).fit(X, Y)
    before = pickle.dumps(warm)
    for table, y, words in ((X, Y + 1, "label 3 is not among the classes"), (X[:, :4], Y, "4 features")):
        with pytest.raises(ValueError, match=words):
            warm.fit(table, y)
    with pytest.raises(ValueError, match="targets have shape"):
        AltMinRegressor(**SMALL, warm_start=True).fit(XR, YR).fit(XR, np.stack([YR, YR], 1))
    assert pickle.dumps(warm) == before
    assert clone(warm).warm_start
    assert equal(clone(warm).fit(X, Y), AltMinClassifier(**SMALL).fit(X, Y))  # a clone has no weights to go on from


# What is printed


@BOTH
def test_a_line_for_each_epoch_is_printed_if_asked_for(make: Any, X: Any, y: Any, capsys: Any) -> None:
    found = make(**SMALL).fit(X, y)
    assert capsys.readouterr().out == ""
    make(**SMALL, verbose=True).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"epoch {i + 1}: loss {loss:.6f}" for i, loss in enumerate(found.loss_curve_)]
    stopped = make(**SMALL, verbose=True, early_stopping=True).fit(X, y)
    last = capsys.readouterr().out.splitlines()[-1]
    assert (
        last == f"epoch 3: loss {stopped.loss_curve_[2]:.6f}, of the rows held back {stopped.validation_curve_[2]:.6f}"
    )
    stopped.partial_fit(X, y)
    assert capsys.readouterr().out.startswith(f"epoch 4: loss {stopped.loss_curve_[3]:.6f}")


# Several fits at once


def dropping(n_inputs: int, n_outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n_inputs, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, n_outputs))


def test_a_search_of_several_jobs_finds_what_one_job_finds() -> None:
    """Dropout draws random numbers in every step, so that two threads would disturb each other."""
    one = AltMinClassifier(**{**SMALL, "epochs": 10}, network=dropping)
    grid = {"lr": [0.001, 0.01, 0.03], "options__share": [0.0, 0.1]}
    alone = GridSearchCV(one, grid, cv=3, scoring="neg_log_loss").fit(X, Y)
    with parallel_config(backend="threading"):
        both = GridSearchCV(one, grid, cv=3, scoring="neg_log_loss", n_jobs=2).fit(X, Y)
    assert np.array_equal(both.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])
    assert both.best_params_ == alone.best_params_
    assert equal(both.best_estimator_, alone.best_estimator_)


def test_threads_leave_torchs_random_numbers_alone() -> None:
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    fits = (delayed(AltMinClassifier(**{**SMALL, "random_state": i}).fit)(X, Y) for i in range(8))
    found = Parallel(n_jobs=4, backend="threading")(fits)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    for i, each in enumerate(found):
        assert equal(each, AltMinClassifier(**{**SMALL, "random_state": i}).fit(X, Y))
