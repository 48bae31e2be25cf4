"""A classifier and a regressor of streams, with river's interface."""

import math
from collections.abc import Hashable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from river.base import MiniBatchClassifier, MiniBatchRegressor
from torch import Tensor, nn

from altmin.common.describe import describe
from altmin.common.errors import demand
from altmin.common.interrupts import InterruptsDeferred
from altmin.stream.features import LARGEST, Array, Category, Features, RunningStatistics, as_numbers
from altmin.stream.gauss_newton import GaussNewtonNets


class OnlineNetwork:
    """Networks with an input for each feature seen, which learn a sample at a time by its own curvature.

    Parameters
    ----------
    hidden
        The width of each hidden layer, of rectified units; () for a linear model.
    members
        The number of nets with other initial weights and factors of forgetting, which are averaged, weighted by their
        recent losses.
    options
        Options of the step, by name: `start`, `forget`, `floor` and `walk` of `altmin.methods.gauss_newton`.
    standardise
        Whether features are standardised by their running means and variances; texts are not.
    forget
        Factor on the past of the running statistics before each sample; 1 weighs all samples alike.
    seed
        Of the initial weights; None for different ones each time.
    max_features
        The largest number of features; a sample with more is refused.
    """

    _classifies: bool

    def __init__(
        self,
        hidden: tuple[int, ...] = (64, 32),
        members: int = 3,
        options: Mapping[str, Any] | None = None,
        standardise: bool = True,
        forget: float = 1.0,
        seed: int | None = None,
        max_features: int = 20_000,
    ):
        self.hidden, self.members, self.options = hidden, members, options
        self.standardise, self.forget = standardise, forget
        self.seed, self.max_features = seed, max_features
        self._begin()

    def _begin(self) -> None:
        """Check the options, and make what is kept from sample to sample."""
        if not isinstance(self.hidden, tuple):
            raise TypeError(f"hidden is a tuple with the width of each hidden layer, given {self.hidden!r:.60}")
        counts = {"members": self.members, "max_features": self.max_features, "hidden": min(self.hidden or (1,))}
        for option, value in counts.items():
            demand(type(self).__name__, option, value, low=1, whole=True)
        self._features = Features()
        self._statistics = RunningStatistics(0, self.forget)
        self._random = np.random.default_rng(self.seed)
        self._net: GaussNewtonNets | None = None
        self._made(1, 2, 0)  # refuses options that the step does not take

    def _made(self, inputs: int, outputs: int, seed: int) -> GaussNewtonNets:
        outputs = outputs if self._classifies else 0
        return GaussNewtonNets(inputs, self.hidden, outputs, seed, self.members, **(self.options or {}))

    def _build(self, outputs: int) -> None:
        """Make the network for the features seen so far."""
        self._net = self._made(max(1, len(self._features.names)), outputs, int(self._random.integers(2**31)))

    @property
    def network(self) -> nn.Module | None:
        """A copy of the network as a module, with an input for each of `feature_names`; None before it has learnt."""
        return None if self._net is None else self._net.module

    @property
    def feature_names(self) -> list[Hashable]:
        """The features seen so far, in the order of the network's inputs; of a text a feature for each value."""
        return list(self._features.names)

    def _admit(self, new: Sequence[Hashable]) -> None:
        """Give features that appear for the first time a column, statistics and an input."""
        if not new:
            return
        known = len(self._features.names) + len(new)
        if known > self.max_features:
            raise ValueError(
                f"{known:,} features are more than max_features={self.max_features:,}; give {type(self).__name__} a "
                "larger one, or fewer features (nothing was learnt)"
            )
        self._features.add(new)
        self._statistics.grow(len(new), [isinstance(name, Category) for name in new])
        # a network that was built without any feature has one input
        if self._net is not None and (more := known - self._net.inputs):
            self._net.add_inputs(more)

    def _inputs(self, rows: Array) -> Array:
        """Return rows (samples, columns) as the network takes them."""
        shown = self._statistics.standardise(rows) if self.standardise else np.nan_to_num(rows, nan=0.0)
        if self._features.categories:
            shown[..., self._features.categories] = rows[..., self._features.categories]
        return shown if shown.shape[1] else np.zeros((len(rows), 1))

    def _outputs(self, samples: Sequence[Mapping[Hashable, Any]]) -> Array:
        """Return what the network predicts, (samples, outputs). ValueError if it is not finite."""
        assert self._net is not None
        rows = np.array([self._features.row(as_numbers(x)) for x in samples])
        rows = rows.reshape(len(samples), len(self._features.names))  # also of none
        with np.errstate(all="ignore"):
            outputs = self._net.predict(self._inputs(rows))
        if not math.isfinite(outputs.sum()):
            raise ValueError(
                "the network's output is not finite: the sample's values or the network's weights are too large; give "
                "smaller values, or begin with a new estimator"
            )
        return outputs

    def learn_one(self, x: Mapping[Hashable, Any], y: Any, w: float = 1.0) -> None:
        """Learn from one sample; one of weight w counts as w samples. ValueError or TypeError for
        one that cannot be learnt from, and nothing has changed; `Diverged` if a number of the step is not finite, and
        no weight of the network has. An interrupt (Ctrl-C) leaves a sample learnt or not."""
        new, row = self._read(x, y, w)
        with InterruptsDeferred():
            self._admit(new)
            self._statistics.update(row)
            target = self._admitted(y)
            if self._net is not None:
                self._net.learn(self._inputs(row[None]), target, w)

    def learn_many(self, X: Any, y: Any, w: Any = None) -> None:
        """Learn from the rows of a DataFrame one after the other, a feature in each column (NaN: absent), and a Series
        of targets in this order. w: the samples' weights; None for 1. ValueError or TypeError if one cannot be learnt
        from, and nothing has changed."""
        if isinstance(y, Mapping | pd.DataFrame):
            raise TypeError("targets are a Series or a list, with one for each row (nothing was learnt)")
        samples = list(zip(X.to_dict("records"), y, [1.0] * len(X) if w is None else w, strict=True))
        for sample in samples:
            self._read(*sample)
        for sample in samples:
            self.learn_one(*sample)

    def _read(self, x: Mapping[Hashable, Any], y: Any, w: float) -> tuple[list[Hashable], Array]:
        """Return the sample's features that are new, and its row with these; changes nothing. ValueError or TypeError
        for one that cannot be learnt from."""
        x = as_numbers(x)
        new = self._features.new(x)
        row = self._features.row(x, new)
        self._check(y)
        if not 0 < w < math.inf:
            raise ValueError(f"a weight is a finite number above 0, given {w!r} (nothing was learnt)")
        return new, row

    def relearn(self) -> None:
        """Learn with long steps again, from the present weights, after data have changed: for a drift detector."""
        if self._net is not None:
            self._net.relearn()

    def _check(self, y: Any) -> None:
        """Raise ValueError for a target that cannot be learnt."""
        raise NotImplementedError

    def _admitted(self, y: Any) -> Any:
        """Return a target as the network takes it. The network is built or grows for it."""
        raise NotImplementedError


class OnlineClassifier(OnlineNetwork, MiniBatchClassifier):
    """A network that learns to classify one sample at a time, with river's interface.

    Samples are dicts of numbers, labels anything hashable. Classes and features may appear at any time: the network
    gets an output or an input for each, and keeps its weights and memories. A new feature
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
        """Return the probability of each class seen so far; nothing before the first."""
        if len(self._classes) < 2:
            return dict.fromkeys(self._classes, 1.0)
        return dict(zip(self._classes, self._outputs([x])[0].tolist(), strict=True))

    def predict_proba_many(self, X: Any) -> Any:
        """Return a DataFrame of probabilities, a class in each column."""
        if len(self._classes) < 2:
            return pd.DataFrame(dict.fromkeys(self._classes, 1.0), index=X.index)
        probabilities = self._outputs(X.to_dict("records"))
        return pd.DataFrame(probabilities, index=X.index, columns=pd.Index(self.classes, dtype=object))

    def predict_many(self, X: Any) -> Any:
        """Return a Series of the most probable classes; of None before the first."""
        probabilities = self.predict_proba_many(X).to_numpy()
        classes = [self.classes[j] for j in probabilities.argmax(1)] if probabilities.size else [None] * len(X)
        return pd.Series(classes, index=X.index, dtype=None if probabilities.size else object)

    def _check(self, y: Any) -> None:
        if y is None or isinstance(y, Tensor) or not isinstance(y, Hashable) or y != y:
            actual = f"given {describe(y):.40} (nothing was learnt)"
            raise ValueError(f"a label is a value that can be found in a dict, {actual}")

    def _admitted(self, y: Any) -> int:
        """The network is built with the second class: one alone has nothing to teach."""
        number = self._classes.setdefault(y, len(self._classes))
        if self._net is None and len(self._classes) > 1:
            self._build(2)
        elif self._net is not None and number == self._net.outputs:
            self._net.add_outputs(1)
        return number


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
        """Return the expected target; 0 before the first sample."""
        return float(self._predicted([x])[0])

    def predict_many(self, X: Any) -> Any:
        """Return a Series of expected targets."""
        return pd.Series(self._predicted(X.to_dict("records")), index=X.index)

    def _predicted(self, samples: Sequence[Mapping[Hashable, Any]]) -> Array:
        outputs = np.zeros(len(samples)) if self._net is None else self._outputs(samples)[:, 0]
        predicted: Array = self._target.mean[0] + self._target.variance[0] ** 0.5 * outputs
        return predicted

    def _check(self, y: Any) -> None:
        if not isinstance(y, Real) or not abs(float(y)) <= LARGEST:
            raise ValueError(f"a target is a number below {LARGEST:g}, given {describe(y):.40} (nothing was learnt)")

    def _admitted(self, y: Any) -> float:
        if self._net is None:
            self._build(1)
        value = np.array([float(y)])
        self._target.update(value)
        return float(self._target.standardise(value)[0])
