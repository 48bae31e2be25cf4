"""A regressor of streams."""

from collections.abc import Hashable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from river.base import MiniBatchRegressor
from torch import Tensor, nn

from altmin.stream.estimator import OnlineNetwork
from altmin.stream.features import LARGEST
from altmin.stream.statistics import RunningStatistics


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

    def _begin(self) -> None:
        super()._begin()
        self._target = RunningStatistics(1, self.forget)

    def predict_one(self, x: Mapping[Hashable, Any]) -> float:
        """The expected target; 0 before the first sample."""
        if self._trained is None:
            return 0.0
        return float(self._target.mean[0] + self._target.variance[0] ** 0.5 * self._output(x).item())

    def predict_many(self, X: Any) -> Any:
        """A Series of expected targets."""
        import pandas as pd

        rows = self._rows(X)
        found = np.zeros(len(rows)) if self._trained is None else self._outputs(rows)[:, 0].numpy()
        return pd.Series(self._target.mean[0] + self._target.variance[0] ** 0.5 * found, index=X.index)

    def _loss(self) -> nn.Module:
        return nn.MSELoss()

    def _check(self, y: Any) -> None:
        if not isinstance(y, Real) or not abs(float(y)) <= LARGEST:  # nor NaN
            raise ValueError(f"a target is a number below {LARGEST:g}, given {y!r:.40} (nothing was learnt)")

    def _targets(self, targets: Sequence[Any]) -> Tensor:
        if self._trained is None:
            self._build(1)
        values = np.array(targets, dtype=np.float64)[:, None]
        for value in values:
            self._target.update(value)
        return torch.from_numpy(self._target.standardise(values))
