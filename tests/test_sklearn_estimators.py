"""The estimators: what they predict, weights of rows, early stopping, streams, pickles, pipelines and searches."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification, make_friedman1
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from altmin.sklearn import AltMinClassifier, AltMinRegressor

SMALL: dict[str, Any] = {"hidden": (8,), "epochs": 3, "batch_size": 16, "random_state": 0}
X, Y = make_classification(60, 6, n_informative=4, n_classes=3, random_state=0)
XR, YR = make_friedman1(60, 6, random_state=0)
BOTH = pytest.mark.parametrize(
    "make, X, y", [(AltMinClassifier, X, Y), (AltMinRegressor, XR, YR)], ids=["classifier", "regressor"]
)


def weights(estimator: Any) -> list[torch.Tensor]:
    return [p.detach() for p in estimator.module_.parameters()]


def equal(a: Any, b: Any) -> bool:
    return all(torch.equal(p, q) for p, q in zip(weights(a), weights(b), strict=True))


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
    assert found.score(X, names[Y]) == np.mean(found.predict(X) == names[Y])


METHODS = pytest.mark.parametrize(
    "method", [{}, {"method": "am-mem"}, {"method": "am-mem", "options": {"length": "fixed"}}], ids=str
)


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


def test_several_targets_are_predicted_in_their_shape() -> None:
    two = np.stack([YR, -2 * YR], 1)
    found = AltMinRegressor((20,), epochs=150, lr=0.01, random_state=0).fit(XR, two)
    assert found.predict(XR).shape == two.shape
    assert np.abs(found.predict(XR)[:, 1] + 2 * found.predict(XR)[:, 0]).mean() < np.abs(YR - YR.mean()).mean()
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
    first = make(**SMALL).fit(X, y)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(5)
    assert equal(first, make(**SMALL).fit(X, y))
    assert not equal(first, make(**{**SMALL, "random_state": 1}).fit(X, y))
    assert first.n_iter_ == len(first.loss_curve_) == 3


@BOTH
@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_a_sparse_table_is_trained_on_as_the_dense_one_bit_for_bit(make: Any, X: Any, y: Any, form: Any) -> None:
    X = X * (np.abs(X) > 0.5)
    dense, thin = make(**SMALL).fit(X, y), make(**SMALL).fit(form(X), y)
    assert equal(dense, thin)
    assert np.array_equal(dense.predict(X), thin.predict(form(X)))


@BOTH
def test_the_network_computes_in_the_type_of_the_table(make: Any, X: Any, y: Any) -> None:
    assert {p.dtype for p in weights(make(**SMALL).fit(X, y))} == {torch.float64}
    single = make(**SMALL).fit(X.astype(np.float32), y)
    assert {p.dtype for p in weights(single)} == {torch.float32}
    assert single.partial_fit(X, y).module_ is single.module_


@BOTH
def test_partial_fit_after_a_pickle_goes_on_as_without(make: Any, X: Any, y: Any) -> None:
    """Dropout draws random numbers, am-adam has moments and a growing penalty: all of it travels."""
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3 if make is AltMinClassifier else 1))
    more = {"classes": [0, 1, 2]} if make is AltMinClassifier else {}
    one = make(network=net, **SMALL).partial_fit(X[:20], y[:20], **more)
    two = pickle.loads(pickle.dumps(one))
    for part in (slice(20, 40), slice(40, 60)):
        one.partial_fit(X[part], y[part])
        two = pickle.loads(pickle.dumps(two)).partial_fit(X[part], y[part])
    assert equal(one, two)
    assert np.array_equal(one.predict(X), two.predict(X))
    assert one.n_iter_ == 3


@BOTH
def test_partial_fit_is_one_pass_in_order_at_the_scale_of_all_rows_so_far(make: Any, X: Any, y: Any) -> None:
    more = {"classes": [0, 1, 2]} if make is AltMinClassifier else {}
    found = make(**SMALL)
    for part in (slice(0, 20), slice(20, 60)):
        found.partial_fit(X[part], y[part], **(more if part.start == 0 else {}))
    z = torch.from_numpy((X - X.mean(0)) / X.std(0))
    assert torch.allclose(found.inputs_of(X), z)
    whole, batches = make(**SMALL).partial_fit(X, y, **more), make(**SMALL, standardise=False)
    assert len(whole.loss_curve_) == 1
    if make is AltMinClassifier:
        for i in range(0, 60, 16):
            batches.partial_fit(z[i : i + 16].numpy(), y[i : i + 16], classes=[0, 1, 2])
        first, *_ = zip(weights(whole), weights(batches), strict=True)
        torch.testing.assert_close(*first)


def test_training_goes_on_by_partial_fit_after_fit() -> None:
    found = AltMinClassifier(**SMALL).fit(X, Y)
    before = [p.clone() for p in weights(found)]
    assert found.partial_fit(X, Y) is found
    assert found.n_iter_ == 4
    assert all(not torch.equal(p, q) for p, q in zip(before, weights(found), strict=True))


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
    assert not hasattr(found.set_params(early_stopping=False).fit(X, y), "validation_curve_")


def test_a_network_of_ones_own_is_copied_and_trained_or_made_by_a_function() -> None:
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    before = [p.detach().clone() for p in net.parameters()]
    found = AltMinClassifier(network=net, **SMALL).fit(X, Y)
    assert all(torch.equal(p, q) for p, q in zip(before, net.parameters(), strict=True))
    assert found.module_ is not net
    assert str(found.module_) == str(net)
    sizes = []

    def make(n_inputs: int, n_outputs: int) -> nn.Module:
        sizes.append((n_inputs, n_outputs))
        return nn.Linear(n_inputs, n_outputs)

    AltMinClassifier(network=make, **SMALL).fit(X, Y)
    AltMinRegressor(network=make, **SMALL).fit(XR, np.stack([YR, YR], 1))
    assert sizes == [(6, 3), (6, 2)]


@pytest.mark.parametrize("method", ["am-sgd", "am-mem", "adam", "am-adam-offline", "bcd"])
def test_other_methods_train_by_name(method: str) -> None:
    given = {**SMALL, "epochs": 60, "lr": 0.02 if method.startswith("a") else None}
    assert AltMinClassifier(method=method, **given).fit(X, Y).score(X, Y) > 0.6  # a third is chance


@BOTH
def test_weight_decay_is_the_methods_option(make: Any, X: Any, y: Any) -> None:
    for decay in (0.0, 0.3):
        by_name = make(**SMALL, weight_decay=decay).fit(X, y)
        assert equal(by_name, make(**SMALL, options={"weight_decay": decay}).fit(X, y))
    assert equal(make(**SMALL).fit(X, y), make(**SMALL, weight_decay=0.01, lr=0.001).fit(X, y))
    lr, decay = (0.006, 2.0) if make is AltMinClassifier else (0.01, 1.0)
    memory = {**SMALL, "method": "am-mem"}
    assert equal(make(**memory).fit(X, y), make(**memory, weight_decay=decay, lr=lr).fit(X, y))
    for method in ("am-mem-fitted", "dtp"):  # they have none
        given = {**SMALL, "method": method, "lr": None}
        assert equal(make(**given).fit(X, y), make(**given, weight_decay=0.0).fit(X, y))


def test_weight_decay_adds_so_many_times_each_parameter_to_its_gradient() -> None:
    net = nn.Linear(6, 3).double()
    given = {**SMALL, "network": net, "method": "sgd", "lr": 0.1, "batch_size": 60, "epochs": 1}
    none, some, auto = (AltMinClassifier(**given, weight_decay=decay).fit(X, Y) for decay in (0.0, 0.3, "auto"))
    for p, q, r, first in zip(weights(none), weights(some), weights(auto), net.parameters(), strict=True):
        torch.testing.assert_close(p - q, 0.1 * 0.3 * first.detach())
        torch.testing.assert_close(p - r, 0.1 * 0.01 * first.detach())


def test_a_grid_search_over_a_pipeline_reaches_the_methods_options() -> None:
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), AltMinClassifier(**{**SMALL, "epochs": 10}))
    grid = {"altminclassifier__hidden": [(4,), (16,)], "altminclassifier__options": [{"share": 0.0}, {"share": 0.3}]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, y)
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
    assert len(search.cv_results_["params"]) == 4
    assert clone(search.best_estimator_).get_params()["altminclassifier__options"] in grid["altminclassifier__options"]


def test_a_table_with_names_knows_them() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=list("abcdef"))
    found = AltMinClassifier(**SMALL).fit(table, pandas.Series(Y))
    assert found.feature_names_in_.tolist() == list("abcdef")
    assert equal(found, AltMinClassifier(**SMALL).fit(X, Y))
    with pytest.raises(ValueError, match="feature names"):
        found.predict(table[list("bacdef")])
