"""Small tables, settings and comparisons for the tests of the estimators."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification, make_friedman1, make_multilabel_classification

from altmin.sklearn import AltMinClassifier, AltMinRegressor

SMALL: dict[str, Any] = {"hidden": (8,), "epochs": 3, "batch_size": 16, "random_state": 0}
X, Y = make_classification(60, 6, n_informative=4, n_classes=3, random_state=0)
XR, YR = make_friedman1(60, 6, random_state=0)
XM, YM = make_multilabel_classification(200, 8, n_classes=4, random_state=0)
KINDS: tuple[Any, ...] = (AltMinClassifier, AltMinRegressor)
BOTH = pytest.mark.parametrize("make, X, y", [(KINDS[0], X, Y), (KINDS[1], XR, YR)], ids=["classifier", "regressor"])


def weights(estimator: Any) -> list[torch.Tensor]:
    return [p.detach() for p in estimator.module_.parameters()]


def equal(a: Any, b: Any) -> bool:
    return all(torch.equal(p, q) for p, q in zip(weights(a), weights(b), strict=True))


def first(make: Any, classes: int = 3) -> dict[str, Any]:
    """What the first `partial_fit` of an estimator needs besides."""
    return {"classes": np.arange(classes)} if make is AltMinClassifier else {}
