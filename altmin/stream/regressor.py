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

    Samples are dicts of numbers. Features may appear at any time, as in `OnlineClassifier`, whose parameters these are.
    The network learns the squared error of targets standardised by their running mean and variance, whatever
    `standardise` says of the features.

    Parameters
    ----------
    hidden
        The width of each hidden layer, of rectified units; () for a linear model.
    method
        How it learns: "am-adam", "am-mem" (with a memory of co-activations), "am-sgd"; "adam" and "sgd" by backprop.
    lr
        The learning rate; None for that of `settings.DEFAULTS`. Of "am-mem" it is that of the output layer.
    options
        Other options of the method, as `altmin.methods.create` takes them, by name.
    standardise
        Whether features are standardised by their running means and variances.
    absent
        What a feature that a sample lacks counts as: "mean" (unknown) or "zero" (counts, indicators).
    forget
        Factor on the past of the running statistics before each sample; 1 weighs all samples alike.
    batch_size
        How many rows `learn_many` takes a step for. With 1 it equals as many calls of `learn_one`.
    seed
        Of the initial weights; None for different ones each time.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> model = OnlineRegressor(seed=0)
    >>> error = evaluate.progressive_val_score(datasets.TrumpApproval(), model, metrics.MAE())
    >>> error.get() < 1
    True
    """

    def __init__(
        self,
        hidden: tuple[int, ...] = (32, 32),
        method: str = "am-adam",
        lr: float | None = None,
        options: Mapping[str, Any] | None = None,
        standardise: bool = True,
        absent: str = "mean",
        forget: float = 1.0,
        batch_size: int = 1,
        seed: int | None = None,
    ):
        self.hidden, self.method, self.lr, self.options = hidden, method, lr, options
        self.standardise, self.absent, self.forget = standardise, absent, forget
        self.batch_size, self.seed = batch_size, seed
        self._begin()
        self._target = RunningStatistics(1, forget)

    def learn_one(self, x: Mapping[Hashable, Any], y: Any) -> None:
        """Learns from one sample. ValueError or TypeError, and nothing changes, for one that cannot be learnt from."""
        self._learn_one(x, y)

    def learn_many(self, X: Any, y: Any) -> None:
        """Learns from a DataFrame, a feature in each column (NaN: absent), and a Series of numbers, in this order."""
        self._learn_many(X, y)

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
