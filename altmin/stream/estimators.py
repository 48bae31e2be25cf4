"""A classifier and a regressor of streams."""

from collections.abc import Hashable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from river.base import MiniBatchClassifier, MiniBatchRegressor
from torch import Tensor

from altmin.common.describe import describe
from altmin.stream.estimator import OnlineNetwork
from altmin.stream.features import LARGEST, Array, RunningStatistics


class OnlineClassifier(OnlineNetwork, MiniBatchClassifier):
    """A network that learns to classify one sample at a time, with river's interface.

    Samples are dicts of numbers, labels anything hashable. Classes and features may appear at any time: the network
    gets an output or an input for each, and keeps its weights, its optimizer's state and its memories. A new feature
    changes no prediction for samples without it, a new class none of the ratios between probabilities of the others.
    Parameters are those of `OnlineNetwork`.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> model = OnlineClassifier(seed=0)
    >>> accuracy = evaluate.progressive_val_score(datasets.Phishing().take(500), model, metrics.Accuracy())
    >>> accuracy.get() > 0.8
    True
    """

    _classifies = True

    def _begin(self) -> None:
        super()._begin()
        self._classes: dict[Hashable, int] = {}

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def classes(self) -> list[Hashable]:
        """The classes seen so far, in the order of the network's outputs."""
        return list(self._classes)

    def predict_proba_one(self, x: Mapping[Hashable, Any], **kwargs: Any) -> dict[Any, float]:
        """The probability of each class seen so far; empty before the first."""
        if len(self._classes) < 2:
            return dict.fromkeys(self._classes, 1.0)
        return dict(zip(self._classes, self._output(x).tolist(), strict=True))

    def predict_proba_many(self, X: Any) -> Any:
        """A DataFrame of probabilities, a class in each column."""
        rows = self._rows(X)
        if len(self._classes) < 2:
            return pd.DataFrame(dict.fromkeys(self._classes, 1.0), index=X.index)
        return pd.DataFrame(self._outputs(rows), index=X.index, columns=pd.Index(self.classes, dtype=object))

    def predict_many(self, X: Any) -> Any:
        """A Series of the most probable classes; of None before the first."""
        found = self.predict_proba_many(X).to_numpy()
        classes = [self.classes[j] for j in found.argmax(1)] if found.size else [None] * len(X)
        return pd.Series(classes, index=X.index, dtype=None if found.size else object)

    def _check(self, y: Any) -> None:
        try:
            known = bool(y == y) and y is not None and hash(y) is not None and not isinstance(y, Tensor)
        except Exception:  # of any kind: an array's truth value, a number that signals
            known = False
        if not known:
            given = f"given {describe(y):.40} (nothing was learnt)"
            raise ValueError(f"a label is a value that can be found in a dict, {given}")

    def _grows(self, targets: Sequence[Any]) -> bool:
        return super()._grows(targets) or any(y not in self._classes for y in targets)

    def _targets(self, targets: Sequence[Any]) -> Array | None:
        """Admits new classes. The network is built with the second class: one alone has nothing to teach."""
        for y in targets:
            self._classes.setdefault(y, len(self._classes))
        if len(self._classes) < 2:
            return None
        if self._net is None:
            self._build(len(self._classes))
        assert self._net is not None
        if more := len(self._classes) - self._net.outputs:
            self._net.add_outputs(more)
        return np.array([self._classes[y] for y in targets])

    def _error(self, predicted: Array, y: Any) -> float:
        return float(self._classes.get(y) != predicted.argmax())


class OnlineRegressor(OnlineNetwork, MiniBatchRegressor):
    """A network that learns to predict a number from one sample at a time, with river's interface.

    Samples are dicts of numbers. Features may appear at any time, as in `OnlineClassifier`. The network learns
    the squared error of targets standardised by their running mean and variance, whatever `standardise` says of the
    features. Parameters are those of `OnlineNetwork`.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> model = OnlineRegressor(seed=0)
    >>> error = evaluate.progressive_val_score(datasets.TrumpApproval(), model, metrics.MAE())
    >>> error.get() < 1
    True
    """

    _classifies = False

    def _begin(self) -> None:
        super()._begin()
        self._target = RunningStatistics(1, self.forget)

    def predict_one(self, x: Mapping[Hashable, Any]) -> float:
        """The expected target; 0 before the first sample."""
        if self._net is None:
            return 0.0
        return float(self._target.mean[0] + self._target.variance[0] ** 0.5 * self._output(x)[0])

    def predict_many(self, X: Any) -> Any:
        """A Series of expected targets."""
        rows = self._rows(X)
        found = np.zeros(len(rows)) if self._net is None else self._outputs(rows)[:, 0]
        return pd.Series(self._target.mean[0] + self._target.variance[0] ** 0.5 * found, index=X.index)

    def _check(self, y: Any) -> None:
        try:
            known = isinstance(y, Real) and abs(float(y)) <= LARGEST  # nor NaN
        except OverflowError:
            known = False
        if not known:
            raise ValueError(f"a target is a number below {LARGEST:g}, given {describe(y):.40} (nothing was learnt)")

    def _targets(self, targets: Sequence[Any]) -> Array:
        if self._net is None:
            self._build(1)
        values = np.array(targets, dtype=np.float64)[:, None]
        for value in values:
            self._target.update(value)
        return self._target.standardise(values)[:, 0]

    def _error(self, predicted: Array, y: Any) -> float:
        deviation = self._target.variance[0] ** 0.5
        return abs(float(y) - self._target.mean[0] - deviation * predicted[0]) / (deviation or 1.0)
