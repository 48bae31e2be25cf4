"""Kinds of targets: several labels for each row, and weights of classes."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.metrics import log_loss
from torch import nn

from altmin.sklearn import AltMinClassifier
from altmin.sklearn.targets import BinaryCrossEntropy

SMALL: dict[str, Any] = {"hidden": (8,), "epochs": 3, "batch_size": 16, "random_state": 0}
X, Y = make_classification(60, 6, n_informative=4, n_classes=3, random_state=0)
XM, YM = make_multilabel_classification(200, 8, n_classes=4, random_state=0)


def equal(a: Any, b: Any) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.module_.parameters(), b.module_.parameters(), strict=True))


# Several labels for each row


def test_the_loss_of_several_labels_has_the_derivatives_that_autograd_finds() -> None:
    torch.manual_seed(0)
    o, q = torch.randn(5, 3, dtype=torch.float64, requires_grad=True), torch.randn(5, 3, dtype=torch.float64)
    y, w = torch.randint(0, 2, (5, 3)).double(), torch.tensor([1.0, 2, 0.5, 1, 3], dtype=torch.float64)
    found = BinaryCrossEntropy().at(o, y)
    p = o.sigmoid()
    each = -(y * p.log() + (1 - y) * (1 - p).log()).sum(1)
    (gradient,) = torch.autograd.grad(each.mean(), o, create_graph=True)
    (curved,) = torch.autograd.grad(gradient, o, q)
    torch.testing.assert_close(found.value, each.mean())
    torch.testing.assert_close(found.delta, gradient)
    torch.testing.assert_close(found.hessian(q), curved)
    torch.testing.assert_close(BinaryCrossEntropy().weighted(o, y, w), (w * each).sum() / w.sum())


@pytest.mark.parametrize("method", ["am-adam", "am-mem", "adam"])
def test_several_labels_are_learnt_and_predicted_as_indicators(method: str) -> None:
    found = AltMinClassifier((30,), method=method, epochs=60, random_state=0).fit(XM[:150], YM[:150])
    p, predicted = found.predict_proba(XM[150:]), found.predict(XM[150:])
    assert found.classes_.tolist() == [0, 1, 2, 3]
    assert np.array_equal(predicted, p > 0.5)
    assert predicted.dtype.kind == "i"
    with torch.no_grad():
        assert np.allclose(p, found.module_(found.inputs_of(XM[150:])).sigmoid().numpy())
    base = YM[:150].mean(0)
    for k in range(4):
        assert log_loss(YM[150:, k], p[:, k]) < log_loss(YM[150:, k], np.full(50, base[k]))
    most = np.unique(YM[150:], axis=0, return_counts=True)[1].max() / 50
    assert found.score(XM[150:], YM[150:]) == (predicted == YM[150:]).all(1).mean() > most  # all four at once


def test_several_labels_are_trained_by_the_steps_of_torchs_loss() -> None:
    y = np.stack([Y == 0, Y != 1], 1).astype(int)
    reference = nn.Linear(6, 2).double()
    given = {**SMALL, "method": "sgd", "lr": 0.1, "batch_size": 60, "weight_decay": 0.0, "options": {"momentum": 0.0}}
    found = AltMinClassifier(**given, network=reference).fit(X, y)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    z, t = torch.from_numpy((X - X.mean(0)) / X.std(0)), torch.from_numpy(y).double()
    for _ in range(3):
        optimizer.zero_grad()
        nn.BCEWithLogitsLoss(reduction="sum")(reference(z), t).div(60).backward()
        optimizer.step()
    for p, q in zip(found.module_.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_indicators_may_be_sparse_weighted_streamed_and_held_back() -> None:
    plain = AltMinClassifier(**SMALL).fit(XM, YM)
    assert equal(plain, AltMinClassifier(**SMALL).fit(XM, sparse.csr_array(YM)))
    w = np.arange(200) % 3
    whole = {**SMALL, "batch_size": 1000}
    one = AltMinClassifier(**whole).fit(XM, YM, sample_weight=w)
    two = AltMinClassifier(**whole).fit(XM.repeat(w, 0), YM.repeat(w, 0))
    assert np.allclose(one.predict_proba(XM), two.predict_proba(XM))
    stream = AltMinClassifier(**SMALL).partial_fit(
        XM[:100], sparse.csr_array(YM[:100])
    )  # the columns tell how many labels there are
    same = pickle.loads(pickle.dumps(stream)).partial_fit(XM[100:], YM[100:])
    assert equal(stream.partial_fit(XM[100:], YM[100:], classes=range(4)), same)
    assert len(AltMinClassifier(**SMALL, early_stopping=True).fit(XM, YM).validation_curve_) == 3


def test_indicators_that_do_not_fit_are_refused() -> None:
    found = AltMinClassifier(**SMALL).fit(XM, YM)
    new, one = AltMinClassifier(**SMALL), AltMinClassifier(**SMALL).fit(X, Y)
    for refused in (
        lambda: found.partial_fit(XM, YM[:, :3]),
        lambda: found.partial_fit(XM, YM[:, 0]),
        lambda: new.fit(XM, YM + 1),
        lambda: new.partial_fit(XM, YM, classes=[0, 1]),
        lambda: new.partial_fit(X, Y[:, None]),
        lambda: one.partial_fit(X, np.eye(3, dtype=int)[Y]),
        lambda: AltMinClassifier(**SMALL, method="bcd", lr=None).fit(XM, YM),
    ):
        with pytest.raises(ValueError):
            refused()


# Weights of classes


def test_weights_of_classes_are_those_of_their_rows() -> None:
    names = np.array(["b", "c", "a"])[Y]
    by_class = AltMinClassifier(**SMALL, class_weight={"a": 3.0, "b": 0.5}).fit(X, names)
    by_row = AltMinClassifier(**SMALL).fit(
        X, names, sample_weight=np.select([names == "a", names == "b"], [3.0, 0.5], 1)
    )
    assert equal(by_class, by_row)
    assert not equal(by_class, AltMinClassifier(**SMALL).fit(X, names))
    w = np.linspace(0.5, 2, 60)
    both = AltMinClassifier(**SMALL, class_weight={"a": 3.0}).fit(X, names, sample_weight=w)
    assert equal(both, AltMinClassifier(**SMALL).fit(X, names, sample_weight=np.where(names == "a", 3.0, 1.0) * w))


def test_balanced_classes_weigh_the_same_in_sum() -> None:
    rare = np.r_[np.flatnonzero(Y == 0)[:4], np.flatnonzero(Y == 1)]
    counts = {0: 4, 1: len(rare) - 4}
    balanced = AltMinClassifier(**SMALL, class_weight="balanced").fit(X[rare], Y[rare])
    weights = {label: len(rare) / (2 * n) for label, n in counts.items()}
    assert equal(balanced, AltMinClassifier(**SMALL, class_weight=weights).fit(X[rare], Y[rare]))


def test_balanced_weights_find_more_of_a_rare_class() -> None:
    table, y = make_classification(1000, 5, weights=[0.95], class_sep=0.5, random_state=0)
    given: dict[str, Any] = {"hidden": (20,), "epochs": 30, "random_state": 0}
    found = {w: AltMinClassifier(**given, class_weight=w).fit(table[:600], y[:600]) for w in (None, "balanced")}
    recall = {w: each.predict(table[600:])[y[600:] == 1].mean() for w, each in found.items()}
    assert recall["balanced"] > recall[None] + 0.2


def test_a_class_of_weight_zero_is_a_class_without_rows() -> None:
    found = AltMinClassifier(**SMALL, class_weight={2: 0.0}).fit(X, Y)
    assert found.classes_.tolist() == [0, 1, 2]
    assert np.isfinite(found.loss_curve_).all()


def test_weights_of_classes_in_a_stream() -> None:
    given = {**SMALL, "class_weight": {2: 4.0}}
    found = AltMinClassifier(**given).partial_fit(X[:5], Y[:5], classes=[0, 1, 2])
    w = np.where(Y == 2, 4.0, 1.0)
    same = AltMinClassifier(**SMALL).partial_fit(X[:5], Y[:5], classes=[0, 1, 2], sample_weight=w[:5])
    assert equal(found.partial_fit(X, Y), same.partial_fit(X, Y, sample_weight=w))
    with pytest.raises(ValueError, match="balanced"):
        AltMinClassifier(**SMALL, class_weight="balanced").partial_fit(X, Y, classes=[0, 1, 2])


def test_several_labels_take_a_weight_for_each_as_scikit_learn_multiplies_them() -> None:
    given = [{0: 1, 1: 2.0}, {0: 1, 1: 1}, {0: 0.5, 1: 1}, {0: 1, 1: 1}]
    found = AltMinClassifier(**SMALL, class_weight=given).fit(XM, YM)
    w = np.where(YM[:, 0] == 1, 2.0, 1.0) * np.where(YM[:, 2] == 0, 0.5, 1.0)
    assert equal(found, AltMinClassifier(**SMALL).fit(XM, YM, sample_weight=w))


def test_weights_of_several_labels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="class_weight holds finite weights of at least 0"):
        AltMinClassifier(**SMALL, class_weight=[{0: 1, 1: -1.0}] * 4).fit(XM, YM)
    with pytest.raises(ValueError, match="list of dicts"):
        AltMinClassifier(**SMALL, class_weight={0: 1, 1: 2}).fit(XM, YM)
