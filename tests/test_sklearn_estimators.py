"""The estimators: what they predict, weights of rows, early stopping, streams, pickles, searches, threads."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from joblib import parallel_config
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn_cases import BOTH, SMALL, XR, YR, X, Y, equal, first, weights
from torch import nn

from altmin.sklearn import AltMinClassifier, AltMinRegressor, training


def dropping(n_inputs: int, n_outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n_inputs, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, n_outputs))


def test_probabilities_are_the_softmax_of_the_networks_output_and_the_largest_is_predicted() -> None:
    names = np.array(["b", "c", "a"])
    found = AltMinClassifier(**SMALL).fit(X, names[Y])
    assert found.classes_.tolist() == ["a", "b", "c"]
    z = (X - X.mean(0)) / X.std(0)
    with torch.no_grad():
        p = found.module_(torch.from_numpy(z)).softmax(1).numpy()
        assert torch.allclose(found.inputs_of(X), torch.from_numpy(z))
    assert np.allclose(found.predict_proba(X), p)
    assert found.predict(X).tolist() == [found.classes_[i] for i in p.argmax(1)]


METHODS = pytest.mark.parametrize("method", [{}, {"method": "am-mem"}], ids=str)


@METHODS
def test_a_network_learns_what_a_linear_model_cannot(method: dict[str, Any]) -> None:
    angle = np.random.default_rng(0).uniform(-3, 3, (200, 2))
    inside = (angle**2).sum(1) < 4
    given: dict[str, Any] = {"epochs": 60, "lr": 0.01, "weight_decay": 0.0, "random_state": 0, **method}  # no noise
    assert AltMinClassifier((30,), **given).fit(angle, inside).score(angle, inside) > 0.95
    found = AltMinRegressor((30,), **given).fit(angle[:, :1], np.sin(angle[:, 0]))
    assert found.score(angle[:, :1], np.sin(angle[:, 0])) > 0.95


@METHODS
def test_a_regression_does_not_depend_on_the_unit_of_targets_or_columns(method: dict[str, Any]) -> None:
    metres = AltMinRegressor(**SMALL, **method).fit(XR, YR)
    other = AltMinRegressor(**SMALL, **method).fit(XR * 1000 + 5, YR * 1e6 - 3)
    assert np.allclose(metres.predict(XR) * 1e6 - 3, other.predict(XR * 1000 + 5))
    assert metres.loss_curve_ == pytest.approx(other.loss_curve_)
    large = AltMinRegressor(**SMALL, **method).fit(XR.astype(np.float32), YR * 1e100)  # beyond float32
    assert np.allclose(large.predict(XR) * 1e-100, metres.predict(XR), rtol=1e-2)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_targets_that_vary_little_about_a_large_number_are_learnt(kind: Any) -> None:
    about_zero = AltMinRegressor(**SMALL).fit(XR.astype(kind), YR)
    times = AltMinRegressor(**SMALL).fit(XR.astype(kind), 1.7e15 + 2 * YR)  # microseconds, which float64 rounds to 0.25
    assert np.allclose((times.predict(XR.astype(kind)) - 1.7e15) / 2, about_zero.predict(XR.astype(kind)), atol=0.2)


def test_several_targets_are_predicted_in_their_shape() -> None:
    two = np.stack([YR, -2 * YR], 1)
    found = AltMinRegressor((20,), epochs=150, lr=0.01, random_state=0).fit(XR, two)
    assert found.score(XR, two) > 0.9
    column = AltMinRegressor(**SMALL).fit(XR, YR[:, None]).predict(XR)
    assert np.array_equal(column, AltMinRegressor(**SMALL).fit(XR, YR).predict(XR)[:, None])


@BOTH
def test_integer_weights_are_repeated_rows_where_the_batch_is_the_whole(make: Any, X: Any, y: Any) -> None:
    w = np.arange(60) % 3
    given = {**SMALL, "batch_size": 1000, "epochs": 20}
    one = make(**given).fit(X, y, sample_weight=w)
    two = make(**given).fit(X.repeat(w, 0), y.repeat(w))
    torch.testing.assert_close([*weights(one)], [*weights(two)], rtol=1e-7, atol=1e-9)
    assert one.loss_curve_ == pytest.approx(two.loss_curve_)
    assert not equal(one, make(**given).fit(X, y))


@BOTH
def test_the_same_seed_gives_the_same_network_and_leaves_torchs_random_numbers_alone(make: Any, X: Any, y: Any) -> None:
    state = torch.get_rng_state()
    found = make(**SMALL).fit(X, y)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(5)
    assert equal(found, make(**SMALL).fit(X, y))
    assert not equal(found, make(**{**SMALL, "random_state": 1}).fit(X, y))
    assert equal(clone(found).fit(X, y), found)


@BOTH
@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_a_sparse_table_is_trained_on_as_the_dense_one_bit_for_bit(
    make: Any, X: Any, y: Any, form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "CHUNK", 7)
    X = X * (np.abs(X) > 0.5)
    dense, thin = make(**SMALL).fit(X, y), make(**SMALL).fit(form(X), y)
    assert equal(dense, thin)
    assert np.array_equal(dense.predict(X), thin.predict(form(X)))


@BOTH
def test_the_network_computes_in_the_type_of_the_table(make: Any, X: Any, y: Any) -> None:
    assert {p.dtype for p in weights(make(**SMALL).fit(X, y))} == {torch.float64}
    single = make(**SMALL).fit(X.astype(np.float32), y, sample_weight=np.linspace(1, 2, 60))
    assert {p.dtype for p in weights(single.partial_fit(X, y))} == {torch.float32}


@BOTH
def test_partial_fit_after_a_pickle_goes_on_as_without(make: Any, X: Any, y: Any) -> None:
    """Dropout draws random numbers, am-adam has moments and a growing penalty: all of it travels."""
    one = make(network=dropping, **SMALL).partial_fit(X[:20], y[:20], **first(make))
    two = pickle.loads(pickle.dumps(one))
    for part in (slice(20, 40), slice(40, 60)):
        one.partial_fit(X[part], y[part])
        two = pickle.loads(pickle.dumps(two)).partial_fit(X[part], y[part])
    assert equal(one, two)
    assert np.array_equal(one.predict(X), two.predict(X))
    assert one.n_iter_ == 3


@BOTH
def test_partial_fit_is_one_pass_in_order_at_the_scale_of_all_rows_so_far(make: Any, X: Any, y: Any) -> None:
    found = make(**SMALL).partial_fit(X[:20], y[:20], **first(make)).partial_fit(X[20:], y[20:])
    z = torch.from_numpy((X - X.mean(0)) / X.std(0))
    assert torch.allclose(found.inputs_of(X), z)
    whole, batches = make(**SMALL).partial_fit(X, y, **first(make)), make(**SMALL, standardise=False)
    assert len(whole.loss_curve_) == 1
    if make is AltMinClassifier:
        for i in range(0, 60, 16):
            batches.partial_fit(z[i : i + 16].numpy(), y[i : i + 16], classes=[0, 1, 2])
        of_first_layer, *_ = zip(weights(whole), weights(batches), strict=True)
        torch.testing.assert_close(*of_first_layer)


def test_training_goes_on_by_partial_fit_after_fit_or_from_a_fitted_network() -> None:
    """Plain gradient steps have no state, so that nothing but the weights goes on."""
    given = {**SMALL, "method": "sgd", "lr": 0.05, "options": {"momentum": 0.0}}
    found = AltMinClassifier(**given).fit(X, Y)
    module, before = found.module_, [p.clone() for p in weights(found)]
    again = AltMinClassifier(**{**given, "network": found.module_}).partial_fit(X, Y, classes=range(3))
    assert found.partial_fit(X, Y) is found
    assert found.n_iter_ == 4
    torch.testing.assert_close(weights(found), weights(again))
    assert not any(torch.equal(p, q) for p, q in zip(before, weights(found), strict=True))
    assert all(torch.equal(p, q) for p, q in zip(before, module.parameters(), strict=True)), "a copy was trained"


@BOTH
def test_training_ends_when_the_loss_has_not_fallen_for_so_many_epochs(make: Any, X: Any, y: Any) -> None:
    given = {**SMALL, "method": "sgd", "weight_decay": 0.0, "epochs": 20, "tol": 0.1, "patience": 3}
    assert make(**given, lr=0.0).fit(X, y).n_iter_ == 4
    assert make(**given, lr=1e-9).fit(X, y).n_iter_ == 4, "less than tol"


@BOTH
def test_early_stopping_keeps_the_weights_of_the_best_epoch(make: Any, X: Any, y: Any) -> None:
    given = {**SMALL, "lr": 0.1, "early_stopping": True, "validation_fraction": 0.3, "patience": 4}
    found = make(**{**given, "epochs": 40}).fit(X, y)
    curve = found.validation_curve_
    best = int(np.argmin(curve))
    assert len(curve) == found.n_iter_ < 40
    assert best < len(curve) - 1
    again = make(**{**given, "epochs": best + 1}).fit(X, y)  # ends with that epoch
    assert equal(found, again)
    assert again.validation_curve_ == curve[: best + 1]
    assert found.set_params(early_stopping=False).fit(X, y).validation_curve_ is None


def test_early_stopping_holds_the_same_part_of_every_class_back() -> None:
    fixed = nn.Linear(6, 2)
    nn.init.zeros_(fixed.weight)
    fixed.bias.data = torch.tensor([0.0, 2.0])
    given: dict[str, Any] = {"lr": 0.0, "weight_decay": 0.0, "early_stopping": True, "validation_fraction": 0.2}
    found = AltMinClassifier(**{**SMALL, "epochs": 1}, **given, network=fixed).fit(X, np.arange(60) >= 50)
    p = np.exp(2) / (1 + np.exp(2))  # of 12 rows held back 2 are of the rare class
    assert found.validation_curve_ == pytest.approx([-(10 * np.log(1 - p) + 2 * np.log(p)) / 12])


def test_a_network_of_ones_own_is_copied_and_trained_or_made_by_a_function() -> None:
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    before = [p.detach().clone() for p in net.parameters()]
    found = AltMinClassifier(network=net, **SMALL).fit(X, Y)
    assert all(torch.equal(p, q) for p, q in zip(before, net.parameters(), strict=True))
    assert str(found.module_) == str(net)
    two = AltMinRegressor(network=nn.Linear, **SMALL).fit(XR, np.stack([YR, YR], 1))
    assert str(two.module_) == str(nn.Linear(6, 2))


@pytest.mark.parametrize("method", ["am-sgd", "am-mem", "adam", "am-adam-offline", "bcd"])
def test_other_methods_train_by_name(method: str) -> None:
    given = {**SMALL, "epochs": 60, "lr": 0.02 if method.startswith("a") else None}
    assert AltMinClassifier(method=method, **given).fit(X, Y).score(X, Y) > 0.6  # a third is chance


@BOTH
def test_weight_decay_is_the_methods_option(make: Any, X: Any, y: Any) -> None:
    for decay in (0.0, 0.3):
        by_name = make(**SMALL, weight_decay=decay).fit(X, y)
        assert equal(by_name, make(**SMALL, options={"weight_decay": decay}).fit(X, y))
    lr, decay = (0.006, 2.0) if make is AltMinClassifier else (0.01, 1.0)
    for method, given in (
        ("am-adam", {"lr": 0.001, "weight_decay": 0.01}),
        ("am-mem", {"lr": lr, "weight_decay": decay}),
    ):
        assert equal(make(**SMALL, method=method).fit(X, y), make(**SMALL, method=method, **given).fit(X, y))
    for method in ("am-mem-fitted", "dtp"):  # they have none
        own = make(**SMALL, method=method, lr=None, weight_decay=None).fit(X, y)
        assert equal(own, make(**SMALL, method=method, lr=None).fit(X, y))


@BOTH
@pytest.mark.parametrize("more", [{}, {"early_stopping": True}], ids=str)
def test_a_line_for_each_epoch_is_printed_if_asked_for(make: Any, X: Any, y: Any, more: Any, capsys: Any) -> None:
    found = make(**SMALL, **more).fit(X, y)
    assert capsys.readouterr().out == ""
    make(**SMALL, **more, verbose=True).fit(X, y)
    lines = [f"epoch {i}: loss {loss:.6f}" for i, loss in enumerate(found.validation_curve_ or found.loss_curve_, 1)]
    assert capsys.readouterr().out.splitlines() == lines


def test_a_search_of_several_jobs_finds_what_one_job_finds() -> None:
    """Dropout draws random numbers in every step, so that two threads would disturb each other."""
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    one = AltMinClassifier(**{**SMALL, "epochs": 10}, network=dropping)
    grid = {"lr": [0.001, 0.01, 0.03], "options": [{"share": 0.0}, {"share": 0.1}]}
    alone = GridSearchCV(one, grid, cv=3, scoring="neg_log_loss").fit(X, Y)
    with parallel_config(backend="threading"):
        both = GridSearchCV(one, grid, cv=3, scoring="neg_log_loss", n_jobs=2).fit(X, Y)
    assert np.array_equal(both.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])
    assert len(set(alone.cv_results_["mean_test_score"])) == 6
    assert both.best_params_ == alone.best_params_
    assert equal(both.best_estimator_, alone.best_estimator_)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
