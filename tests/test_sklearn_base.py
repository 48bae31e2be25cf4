"""Settings and input that do not fit get one clear sentence, and leave a fitted estimator as it was."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from torch import nn

from altmin import Diverged, methods
from altmin.sklearn import AltMinClassifier, AltMinRegressor
from altmin.sklearn.targets import Labels

SMALL: dict[str, Any] = {"hidden": (4,), "epochs": 2, "random_state": 0}
X, Y = make_classification(30, 5, n_informative=3, n_classes=3, random_state=0)


WRONG_SETTINGS: list[dict[str, Any]] = [
    *({"epochs": 0}, {"batch_size": 2.5}, {"patience": "ten"}, {"tol": -1.0}, {"weight_decay": -0.1}),
    *({"weight_decay": None}, {"weight_decay": "none"}, {"lr": "fast"}, {"validation_fraction": 1.0}, {"hidden": 100}),
    *({"weight_decay": 0.1, "options": {"weight_decay": 0.1}}, {"weight_decay": 0.1, "method": "am-mem-fitted"}),
    *({"options": 3}, {"options": {"shares": 0.1}}, {"method": "am-adm"}, {"network": 7}, {"class_weight": "balance"}),
    *({"network": lambda inputs, outputs: "net"}, {"network": nn.Linear(4, 3)}, {"network": nn.Linear(5, 2)}),
    *({"device": "abacus"}, {"warm_start": "yes"}),
    *({"categorical": "all"}, {"class_weight": 3.0}, {"class_weight": {0: -1.0}}, {"class_weight": {9: 2.0}}),
    *({"class_weight": {0: float("nan")}}, {"class_weight": [1.0, 2.0, 3.0]}, {"class_weight": {0: 0, 1: 0, 2: 0}}),
    *({"method": "bcd", "lr": None, "class_weight": "balanced"},),
]


@pytest.mark.parametrize("settings", WRONG_SETTINGS)
def test_a_setting_without_meaning_is_refused_when_fitting_and_nothing_is_lost(settings: Any) -> None:
    found = AltMinClassifier(**SMALL).fit(X, Y)
    before, module = found.predict_proba(X), found.module_
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        found.set_params(**settings).fit(X, Y)
    assert found.module_ is module
    assert np.array_equal(found.predict_proba(X), before)


def test_weights_that_a_method_cannot_use_are_refused() -> None:
    with pytest.raises(ValueError):
        AltMinClassifier(**SMALL, method="bcd", lr=None).fit(X, Y, sample_weight=np.ones(30))
    found = AltMinClassifier(**SMALL, method="bcd", lr=None).fit(X, Y)
    with pytest.raises(ValueError):
        found.partial_fit(X, Y, sample_weight=np.ones(30))
    with pytest.raises(ValueError):
        AltMinRegressor(**SMALL, method="bcd", lr=None).fit(X, Y)
    with pytest.raises(ValueError, match=r"(?i)sample weights .*zero"):
        AltMinClassifier(**SMALL).fit(X, Y, sample_weight=np.zeros(30))


def test_classes_are_named_in_the_first_partial_fit_and_stay() -> None:
    with pytest.raises(ValueError, match="the first partial_fit needs classes="):
        AltMinClassifier(**SMALL).partial_fit(X, Y)
    with pytest.raises(ValueError, match="label 2 is not among the classes"):
        AltMinClassifier(**SMALL).partial_fit(X, Y, classes=[0, 1])
    found = AltMinClassifier(**SMALL).partial_fit(X, Y, classes=[0, 1, 2, 3])
    assert found.predict_proba(X).shape == (30, 4)
    before = found.predict_proba(X)
    with pytest.raises(ValueError, match="are not those of the first call"):
        found.partial_fit(X, Y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="label 9 is not among the classes"):
        found.partial_fit(X, np.full(30, 9))
    assert np.array_equal(found.predict_proba(X), before)


def test_rows_of_weight_zero_are_left_out_with_their_classes() -> None:
    found = AltMinClassifier(**SMALL).fit(X, Y, sample_weight=(Y != 2).astype(float))
    assert found.classes_.tolist() == [0, 1]
    same = AltMinClassifier(**SMALL).fit(X[Y != 2], Y[Y != 2])
    assert all(torch.allclose(p, q) for p, q in zip(found.module_.parameters(), same.module_.parameters(), strict=True))


def test_early_stopping_holds_the_same_part_of_every_class_back_where_it_can() -> None:
    given = {**SMALL, "early_stopping": True, "validation_fraction": 0.2}
    assert Labels(np.arange(3)).strata(Y, 0.2) is Y
    assert Labels(np.arange(8)).strata(np.append(Y, 7), 0.2) is None  # one row alone cannot be in both parts
    assert Labels(np.arange(15)).strata(np.arange(30) // 2, 0.2) is None  # more classes than rows held back
    assert AltMinClassifier(**given).fit(X, np.arange(30) // 2).n_iter_ == 2


@pytest.mark.parametrize("takes_loss", [True, False])
def test_a_registered_method_is_given_the_options_that_it_has(takes_loss: bool, own_registry: None) -> None:
    seen: list[dict[str, Any]] = []

    def made(model: nn.Module, **given: Any) -> methods.Method:
        seen.append(given)
        return methods.create("am-adam", model, **given)

    if takes_loss:
        methods.register("mine")(lambda model, lr=0.5, loss=None: made(model, lr=lr, loss=loss))
    else:
        methods.register("mine")(lambda model: made(model))
    found = AltMinClassifier(**SMALL, method="mine").fit(X, Y)
    assert found.predict(X).shape == Y.shape
    assert [sorted(each) for each in seen] == [["loss", "lr"] if takes_loss else []]
    if takes_loss:
        AltMinRegressor(**SMALL, method="mine").fit(X, Y)
        assert isinstance(seen[1]["loss"], nn.MSELoss)
        return
    with pytest.raises(ValueError, match="method 'mine' trains on one label for each row alone; use am-adam"):
        AltMinRegressor(**SMALL, method="mine").fit(X, Y)
    with pytest.raises(ValueError, match="unknown option of method 'mine', 'lr'"):
        AltMinClassifier(**{**SMALL, "lr": 0.3}, method="mine").fit(X, Y)


KINDS: tuple[Any, ...] = (AltMinClassifier, AltMinRegressor)
WRONG: dict[str, Any] = {
    "a target": (np.hstack([X, X]), np.append(Y[1:], np.nan), None),
    "fewer targets": (X[:, :2], Y[1:], None),
    "several targets": (X[:, :2], np.stack([Y, Y], 1)[:, :, None], None),
    "weights": (X[:, :2], Y, np.zeros(30)),
    "numbers without a variance": (X * 1e200, Y, None),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", ["fit", "partial_fit"])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_call_that_is_refused_changes_no_attribute(kind: Any, call: str, wrong: str) -> None:
    table, y, w = WRONG[wrong]
    new, found = kind(**SMALL), kind(**SMALL).fit(X, Y)
    first = {"classes": [0, 1, 2]} if call == "partial_fit" and kind is AltMinClassifier else {}
    for each, known in ((new, first), (found, {})):
        before, attributes = pickle.dumps(each), dict(vars(each))
        with pytest.raises(ValueError):
            getattr(each, call)(table, y, sample_weight=w, **known)
        assert pickle.dumps(each) == before
        assert all(vars(each)[name] is value for name, value in attributes.items())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["am-adam", "am-mem", "adam", "sgd"])
@pytest.mark.parametrize("call", ["fit", "partial_fit"])
def test_a_call_that_diverges_changes_no_attribute(kind: Any, method: str, call: str) -> None:
    found = kind(**SMALL, method=method, standardise=False).fit(X, Y)
    before, predicted = pickle.dumps(found), found.predict(X)
    table = X[:, :4] if call == "fit" else X
    with pytest.raises(Diverged):
        getattr(found, call)(np.vstack([table, table[:2] * 1e160, table[:2] * 1e160]), np.append(Y, [0, 0, 1, 1]))
    assert pickle.dumps(found) == before
    assert np.array_equal(found.predict(X), predicted)
    assert found.partial_fit(X, Y).loss_curve_[-1] < 10


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["adam", "sgd"])
def test_backprop_that_diverges_is_noticed(kind: Any, method: str) -> None:
    found = kind(**{**SMALL, "epochs": 20}, method=method, lr=1e200, batch_size=5)
    with pytest.raises(Diverged, match="lower the learning rate"):
        found.fit(X, Y)
    assert not hasattr(found, "module_")


@pytest.mark.parametrize("epochs", [1, 10], ids=["seen in the end", "seen on the way"])
def test_a_finite_loss_that_explodes_is_noticed(epochs: int) -> None:
    table = np.random.default_rng(0).random((200, 10))
    found = AltMinRegressor(method="am-mem-fitted-offline", epochs=epochs, options={"rate": 1e5}, random_state=0)
    with pytest.raises(Diverged, match="exploded"):
        found.fit(table, table.sum(1) ** 2)
    assert not hasattr(found, "module_")


def test_a_target_that_is_no_float_is_refused() -> None:
    with pytest.raises(ValueError):
        AltMinRegressor(**SMALL).fit(X, Y * 1e200)
    with pytest.raises(ValueError, match="beyond the range of float32"):
        AltMinRegressor(**SMALL).fit(X.astype(np.float32), Y * 1e100)


def test_an_answer_that_is_not_finite_is_refused() -> None:
    classifier, regressor = (kind(**SMALL, standardise=False).fit(X, Y) for kind in KINDS)
    rows = X.copy()
    rows[3] = 1e308
    for ask in (classifier.predict, classifier.predict_proba, regressor.predict):
        with pytest.raises(ValueError, match="the outputs for row 3 are not finite: its numbers are too large"):
            ask(rows)
    narrow = AltMinRegressor(**SMALL).fit(X * 1e-9, Y)
    with pytest.raises(ValueError, match="the standardised values for row 3 are not finite"):
        narrow.inputs_of(rows)


def test_a_search_varies_single_options_of_the_method():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
    classifier = AltMinClassifier(hidden=(4,), epochs=2, options={"order": "weights-first"}, random_state=0)
    found = GridSearchCV(classifier, {"options__share": [0.05, 0.2]}, cv=2).fit(X, y)
    assert set(found.best_params_) == {"options__share"}
    share = found.best_params_["options__share"]
    assert found.best_estimator_.options == {"order": "weights-first", "share": share}
    assert classifier.options == {"order": "weights-first"}
    with pytest.raises(ValueError, match="unknown option"):
        clone(classifier).set_params(options__shere=0.1).fit(X, y)
