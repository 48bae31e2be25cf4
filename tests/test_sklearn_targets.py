"""Kinds of targets: several labels for each row, and weights of classes."""

import pickle

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.metrics import log_loss
from sklearn_cases import SMALL, XM, YM, X, Y, equal
from torch import nn

from altmin.sklearn import AltMinClassifier

# Several labels for each row


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


def test_indicators_may_be_sparse_streamed_and_held_back() -> None:
    plain = AltMinClassifier(**SMALL).fit(XM, YM)
    assert equal(plain, AltMinClassifier(**SMALL).fit(XM, sparse.csr_array(YM)))
    stream = AltMinClassifier(**SMALL).partial_fit(XM[:100], sparse.csr_array(YM[:100]))  # the columns are the labels
    same = pickle.loads(pickle.dumps(stream)).partial_fit(XM[100:], YM[100:])
    assert equal(stream.partial_fit(XM[100:], YM[100:], classes=range(4)), same)
    assert len(AltMinClassifier(**SMALL, early_stopping=True).fit(XM, YM).validation_curve_) == 3


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


def test_weights_of_classes_in_a_stream() -> None:
    given = {**SMALL, "class_weight": {2: 4.0}}
    found = AltMinClassifier(**given).partial_fit(X[:5], Y[:5], classes=[0, 1, 2])
    w = np.where(Y == 2, 4.0, 1.0)
    same = AltMinClassifier(**SMALL).partial_fit(X[:5], Y[:5], classes=[0, 1, 2], sample_weight=w[:5])
    assert equal(found.partial_fit(X, Y), same.partial_fit(X, Y, sample_weight=w))
