"""Settings and input that do not fit are refused and leave a fitted estimator as it was; so does what diverges."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn_cases import KINDS, SMALL, XM, YM, X, Y, first
from torch import nn

from altmin import Diverged, methods
from altmin.sklearn import AltMinClassifier, AltMinRegressor

WRONG_SETTINGS: list[dict[str, Any]] = [
    *({"epochs": 0}, {"batch_size": 2.5}, {"patience": "ten"}, {"tol": -1.0}, {"weight_decay": -0.1}),
    *({"weight_decay": "none"}, {"lr": "fast"}, {"validation_fraction": 1.0}, {"hidden": 100}, {"device": "abacus"}),
    *({"weight_decay": 0.1, "method": "am-mem-fitted"}, {"options": 3}, {"options": {"shares": 0.1}}),
    *({"method": "am-adm"}, {"network": 7}, {"network": nn.Linear(4, 3)}, {"network": nn.Linear(6, 2)}),
    *({"categorical": "all"}, {"categorical": "auto", "standardise": False}, {"class_weight": "balance"}),
    *({"class_weight": 3.0}, {"class_weight": {0: -1.0}}, {"class_weight": {9: 2.0}}, {"class_weight": {0: np.nan}}),
    *({"class_weight": {0: 0, 1: 0, 2: 0}}, {"method": "bcd", "lr": None, "class_weight": "balanced"}),
]


@pytest.mark.parametrize("settings", WRONG_SETTINGS)
def test_a_setting_without_meaning_is_refused_when_fitting_and_nothing_is_lost(settings: Any) -> None:
    found = AltMinClassifier(**SMALL).fit(X, Y)
    before, module = found.predict_proba(X), found.module_
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        found.set_params(**settings).fit(X, Y)
    assert found.module_ is module
    assert np.array_equal(found.predict_proba(X), before)


def classifier(**more: Any) -> Any:
    return AltMinClassifier(**{**SMALL, **more})


KNOWN, SEVERAL = classifier().partial_fit(X, Y, classes=range(4)), classifier().fit(XM, YM)
REFUSED: dict[str, tuple[Any, str]] = {
    "no classes": (lambda: classifier().partial_fit(X, Y), "the first partial_fit needs classes="),
    "no classes of a column": (lambda: classifier().partial_fit(X, Y[:, None]), "classes="),
    "too few classes": (lambda: classifier().partial_fit(X, Y, classes=[0, 1]), "label 2 is not among the classes"),
    "other classes": (lambda: KNOWN.partial_fit(X, Y, classes=[0, 1]), "are not those of the first call"),
    "a new label": (lambda: KNOWN.partial_fit(X, np.full(60, 9)), "label 9 is not among the classes"),
    "balanced": (lambda: classifier(class_weight="balanced").partial_fit(X, Y, classes=range(3)), "balanced"),
    "weights of zero": (lambda: classifier().fit(X, Y, sample_weight=np.zeros(60)), "(?i)sample weights .*zero"),
    "weights": (lambda: classifier(method="bcd", lr=None).fit(X, Y, sample_weight=np.ones(60)), "sample_weight"),
    "one label or several": (lambda: KNOWN.partial_fit(X, np.eye(3, dtype=int)[Y]), "1d"),
    "several labels or one": (lambda: SEVERAL.partial_fit(XM, YM[:, 0]), "4 labels"),
    "fewer labels": (lambda: SEVERAL.partial_fit(XM, YM[:, :3]), "4 labels"),
    "labels of 1 and 2": (lambda: classifier().fit(XM, YM + 1), "0 or 1"),
    "weights of labels": (lambda: classifier().fit(XM, YM, sample_weight=np.ones(200)), "sample weights"),
    "weights of several": (lambda: classifier(class_weight={1: 2.0}).fit(XM, YM), "MultiOutputClassifier"),
    "its own loss": (lambda: classifier(method="bcd", lr=None).fit(XM, YM), "one label for each row"),
    "its own loss, numbers": (lambda: AltMinRegressor(**SMALL, method="bcd").fit(X, Y), "one label for each row"),
    "small targets": (lambda: AltMinRegressor(**SMALL).fit(X, Y * 1e-200), "target 0 has a variance below"),
    "small columns": (lambda: classifier().fit(X * 1e-200, Y), "column 0 has a variance below"),
    "large targets": (lambda: AltMinRegressor(**SMALL).fit(X, Y * 1e200), "target 0 has no finite mean"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_in_a_sentence_and_changes_nothing(name: str) -> None:
    call, words = REFUSED[name]
    before = pickle.dumps((KNOWN, SEVERAL))
    with pytest.raises((ValueError, TypeError), match=words):
        call()
    assert pickle.dumps((KNOWN, SEVERAL)) == before


WRONG: dict[str, Any] = {
    "a target": (np.hstack([X, X]), np.append(Y[1:], np.nan), None),
    "several targets": (X[:, :2], np.stack([Y, Y], 1)[:, :, None], None),
    "weights": (X[:, :2], Y, np.zeros(60)),
    "numbers without a variance": (X * 1e200, Y, None),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", ["fit", "partial_fit"])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_call_that_is_refused_changes_no_attribute(kind: Any, call: str, wrong: str) -> None:
    table, y, w = WRONG[wrong]
    new, found = kind(**SMALL), kind(**SMALL).fit(X, Y)
    for each, known in ((new, first(kind) if call == "partial_fit" else {}), (found, {})):
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


DIVERGING = {
    "backprop": (AltMinRegressor(**{**SMALL, "epochs": 20}, method="adam", lr=1e200), "lower the learning rate"),
    "classes": (AltMinClassifier(**{**SMALL, "epochs": 20}, method="sgd", lr=1e200), "lower the learning rate"),
    "in the end": (AltMinRegressor(method="am-mem-fitted-offline", epochs=1, options={"rate": 1e5}), "exploded"),
    "on the way": (AltMinRegressor(method="am-mem-fitted-offline", epochs=10, options={"rate": 1e5}), "exploded"),
}


@pytest.mark.parametrize("name", DIVERGING)
def test_training_that_diverges_or_explodes_is_noticed(name: str) -> None:
    found, words = DIVERGING[name]
    table = np.random.default_rng(0).random((200, 10))
    y = table.sum(1) ** 2
    with pytest.raises(Diverged, match=words):
        found.set_params(random_state=0).fit(table, y > y.mean() if found is DIVERGING["classes"][0] else y)
    assert not hasattr(found, "module_")


def test_an_answer_that_is_not_finite_is_refused() -> None:
    labels, numbers = (kind(**SMALL, standardise=False).fit(X, Y) for kind in KINDS)
    rows = X.copy()
    rows[3] = 1e308
    for ask in (labels.predict, labels.predict_proba, numbers.predict):
        with pytest.raises(ValueError, match="the outputs for row 3 are not finite: its numbers are too large"):
            ask(rows)


def test_rows_of_weight_zero_are_left_out_with_their_classes() -> None:
    found = AltMinClassifier(**SMALL).fit(X, Y, sample_weight=(Y != 2).astype(float))
    assert found.classes_.tolist() == [0, 1]
    same = AltMinClassifier(**SMALL).fit(X[Y != 2], Y[Y != 2])
    assert all(torch.allclose(p, q) for p, q in zip(found.module_.parameters(), same.module_.parameters(), strict=True))


def test_a_registered_method_is_given_the_options_that_it_has(own_registry: None) -> None:
    seen: list[Any] = []

    def mine(model: nn.Module, lr: float = 0.5, loss: Any = None) -> methods.Method:
        seen.append((lr, type(loss)))
        return methods.create("am-adam", model, lr=lr, loss=loss)

    methods.register("mine")(mine)
    methods.register("bare")(lambda model: methods.create("am-adam", model))
    for kind in KINDS:
        kind(**SMALL, method="mine").fit(X, Y)
    assert seen == [(0.001, nn.CrossEntropyLoss), (0.001, nn.MSELoss)]
    AltMinClassifier(**SMALL, method="bare").fit(X, Y)
    with pytest.raises(ValueError, match="method 'bare' trains on one label for each row alone; use am-adam"):
        AltMinRegressor(**SMALL, method="bare").fit(X, Y)
    with pytest.raises(ValueError, match="unknown option of method 'bare', 'lr'"):
        AltMinClassifier(**SMALL, lr=0.3, method="bare").fit(X, Y)
