"""What the estimators for streams have in common: features that join in, running statistics, steps."""

import copy
import math
from collections.abc import Hashable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from torch import nn

from altmin.common.errors import demand
from altmin.common.swap import changed
from altmin.stream import settings
from altmin.stream.features import (
    Array,
    Category,
    Features,
    RunningStatistics,
    as_numbers,
    demand_sample,
    table_of,
    targets_of,
)
from altmin.stream.gauss_newton import GaussNewtonNets
from altmin.stream.method_net import MethodNet

STATISTICS = ("_statistics", "_target")
"""What every sample changes, besides the network by a step of its own."""
STATE = (*STATISTICS, "_watch", "_features", "_classes", "_random", "_net")
"""What a sample can change."""


class OnlineNetwork:
    """A network with an input for each feature seen, trained a sample or a mini-batch at a time.

    Parameters
    ----------
    hidden
        The width of each hidden layer, of rectified units; () for a linear model. None for (64, 32) with a memory
        ("gauss-newton", "am-mem-fitted") and (32, 32) without.
    method
        How it learns: "gauss-newton", by each sample's own curvature and without a learning rate; "am-adam",
        "am-mem-fitted" (with a memory of co-activations), "am-sgd"; "adam" and "sgd" by backprop.
    lr
        The learning rate; None for that of `settings.DEFAULTS`. Of "am-mem-fitted" it is that of the output layer.
    options
        Other options of the method, as `altmin.methods.create` takes them, by name.
    members
        With "gauss-newton": how many nets of other initial weights and factors of forgetting are averaged, weighted by
        their recent losses.
    detector
        With "gauss-newton": a drift detector of river, such as `river.drift.ADWIN()`, that is shown whether each sample
        was misclassified, or the size of its error; where it detects drift, learning starts anew from the present
        weights.
    standardise
        Whether features are standardised by their running means and variances; texts are not.
    absent
        What a feature that a sample lacks counts as: "mean" (unknown) or "zero" (counts, indicators).
    forget
        Factor on the past of the running statistics before each sample; 1 weighs all samples alike.
    batch_size
        How many rows `learn_many` takes a step for. With 1 it equals as many calls of `learn_one`; "gauss-newton" takes
        no other.
    seed
        Of the initial weights; None for different ones each time.
    max_features
        The largest number of features; a sample with more is refused. None for that of `settings.max_features`.
    """

    _classifies: bool

    def __init__(
        self,
        hidden: tuple[int, ...] | None = None,
        method: str = settings.GAUSS_NEWTON,
        lr: float | None = None,
        options: Mapping[str, Any] | None = None,
        members: int = 3,
        detector: Any = None,
        standardise: bool = True,
        absent: str = "mean",
        forget: float = 1.0,
        batch_size: int = 1,
        seed: int | None = None,
        max_features: int | None = None,
    ):
        self.hidden, self.method, self.lr, self.options = hidden, method, lr, options
        self.members, self.detector = members, detector
        self.standardise, self.absent, self.forget = standardise, absent, forget
        self.batch_size, self.max_features, self.seed = batch_size, max_features, seed
        self._begin()

    def _begin(self) -> None:
        """Checks the options, and makes what is kept from sample to sample."""
        name = type(self).__name__
        if self.hidden is not None and not isinstance(self.hidden, tuple):
            raise TypeError(f"hidden is a tuple with the width of each hidden layer, given {self.hidden!r:.60}")
        settings.check(self.method, self.lr, self.options)
        for width in settings.widths(self.method, self.hidden):
            demand(name, "hidden", width, low=1, whole=True)
        demand(name, "batch_size", self.batch_size, low=1, whole=True)
        demand(name, "members", self.members, low=1, whole=True)
        compact = self.method == settings.GAUSS_NEWTON
        if compact and self.batch_size != 1:
            raise ValueError(f"method 'gauss-newton' learns samples one by one, given batch_size={self.batch_size}")
        if self.detector is not None and not (compact and hasattr(self.detector, "drift_detected")):
            raise ValueError(
                f"detector is a drift detector of river, such as river.drift.ADWIN(), for method 'gauss-newton', given "
                f"{self.detector!r:.60} for {self.method!r}"
            )
        self._watch = copy.deepcopy(self.detector)
        self._most = settings.max_features(self.method) if self.max_features is None else self.max_features
        demand(name, "max_features", self._most, low=1, whole=True)
        self._features = Features(self.absent)
        self._statistics = RunningStatistics(0, self.forget)
        self._random = np.random.default_rng(self.seed)
        self._net: GaussNewtonNets | MethodNet | None = None

    @property
    def network(self) -> nn.Module | None:
        """The network, an ordinary module with an input for each of `feature_names`; None before it has learnt. Of
        "gauss-newton" it is a copy; of other methods another object after a table or a new feature has been learnt."""
        return None if self._net is None else self._net.module

    @property
    def feature_names(self) -> list[Hashable]:
        """The features seen so far, in the order of the network's inputs; of a text a feature for each value."""
        return list(self._features.names)

    def _build(self, outputs: int) -> None:
        """Makes the network for the features seen so far."""
        hidden, seed = settings.widths(self.method, self.hidden), int(self._random.integers(2**31))
        widths = (max(1, len(self._features.names)), hidden, outputs)
        self._net = settings.build(
            self.method, widths, self._classifies, self.lr, self.options, seed, self.members
        )  # fmt: skip

    def _admit(self, new: Sequence[Hashable]) -> None:
        """Gives features that appear for the first time a column, statistics and an input."""
        if not new:
            return
        self._features.add(new)
        self._statistics.grow(len(new), [self.absent == "zero" or isinstance(name, Category) for name in new])
        if self._net is None:
            return
        more = len(self._features.names) - self._net.inputs  # one that was built without any feature has one input
        if more:
            self._net.add_inputs(more)

    def _inputs(self, rows: Array) -> Array:
        """Rows (samples, columns) as the network takes them."""
        shown = self._statistics.standardise(rows) if self.standardise else np.nan_to_num(rows, nan=0.0)
        if self._features.categories:
            shown[..., self._features.categories] = rows[..., self._features.categories]
        return shown if shown.shape[1] else np.zeros((len(rows), 1))

    def _output(self, x: Mapping[Hashable, Any]) -> Array:
        """What the network predicts for one sample, (outputs,). ValueError if it is not finite."""
        demand_sample(x)
        return self._outputs(self._features.row(as_numbers(x))[None])[0]

    def _outputs(self, rows: Array) -> Array:
        assert self._net is not None
        with np.errstate(all="ignore"):
            found = self._net.predict(self._inputs(rows))
        if not math.isfinite(found.sum()):
            raise ValueError(
                "the network's output is not finite: the sample's values or the network's weights are too large; give "
                "smaller values, or a new estimator a smaller lr"
            )
        return found

    def learn_one(self, x: Mapping[Hashable, Any], y: Any, w: float = 1.0) -> None:
        """Learns from one sample; one of weight w counts as w samples. ValueError or TypeError for one that cannot be
        learnt from, `Diverged` if a number of the step is not finite; then nothing has changed."""
        demand_sample(x)
        x = as_numbers(x)
        new = self._features.new(x)
        row = self._features.row(x, new)
        self._check(y)
        weights = self._weights([w], 1) if w != 1.0 else None
        self._learn(new, row[None], [y], weights)

    def learn_many(self, X: Any, y: Any, w: Any = None) -> None:
        """Learns from a DataFrame, a feature in each column (NaN: absent), and a Series of targets, in this order: from
        all of it or, with the errors of `learn_one`, from none. w: the samples' weights; None for 1."""
        (columns, table), targets = table_of(X), targets_of(y)
        if len(targets) != len(table):
            raise ValueError(f"as many targets as samples are needed: {len(table)} samples, {len(targets)} targets")
        new = self._features.new(columns)
        rows = self._features.rows(columns, table, new)
        for target in targets:
            self._check(target)
        self._learn(new, rows, targets, None if w is None else self._weights(targets_of(w), len(table)))

    def _weights(self, w: Sequence[Any], samples: int) -> Array:
        if self.method != settings.GAUSS_NEWTON:
            raise ValueError("samples with weights are learnt by method='gauss-newton' (nothing was learnt)")
        sound = len(w) == samples and all(isinstance(each, Real) and 0 < float(each) < math.inf for each in w)
        if not sound:
            raise ValueError("a sample's weight is a finite number above 0, one for each (nothing was learnt)")
        return np.array(w, dtype=np.float64)

    def _learn(
        self, new: Sequence[Hashable], rows: Array, targets: Sequence[Any], weights: Array | None = None
    ) -> None:
        """Takes rows (samples, columns) with these new features, `batch_size` of them at a time."""
        known = len(self._features.names)
        if known + len(new) > self._most:
            raise ValueError(
                f"{known + len(new):,} features are more than max_features={self._most:,}; give "
                f"{type(self).__name__} a larger one, or fewer features (nothing was learnt)"
            )
        grows = bool(new) or self._grows(targets)
        if grows and len(rows) == 1 and isinstance(self._net, GaussNewtonNets):
            self._learn_growing(self._net, new, rows, targets, weights)
            return
        alone = len(rows) <= self.batch_size and not grows
        self._take(STATISTICS if alone else STATE, new, rows, targets, weights)

    def _take(self, state: Sequence[str], *given: Any) -> None:
        with changed(self, *state) as after:
            after._learn_rows(*given)

    def _learn_rows(self, new: Sequence[Hashable], rows: Array, targets: Sequence[Any], weights: Array | None) -> None:
        self._admit(new)
        for start in range(0, len(rows), self.batch_size):
            own = slice(start, start + self.batch_size)
            part = rows[own]
            errors = self._errors(part, targets[own])
            for row in part:
                self._statistics.update(row)
            y = self._targets(targets[own])
            if y is not None:
                assert self._net is not None
                # the last change of a single step that can fail, which it does without changing anything
                self._net.learn(self._inputs(part), y, None if weights is None else weights[own])
            self._observe(errors)

    def _learn_growing(self, net: GaussNewtonNets, *given: Any) -> None:
        """One sample with new features or classes. They join the network itself, not a copy of it, and are removed from
        it after an error."""
        features, classes, size = len(self._features.names), list(getattr(self, "_classes", ())), net.size()
        try:
            self._take(STATISTICS, *given)
        except BaseException:
            self._features.remove(features)
            net.resize(size)
            if classes:
                self._classes = {name: j for j, name in enumerate(classes)}
            raise

    def _errors(self, rows: Array, targets: Sequence[Any]) -> list[float]:
        """How wrong the predictions of rows are, for the detector; empty without one."""
        if self._watch is None or self._net is None:
            return []
        found = self._net.predict(self._inputs(rows))
        return [self._error(predicted, y) for predicted, y in zip(found, targets, strict=True)]

    def _observe(self, errors: Sequence[float]) -> None:
        """Shows errors to the detector, and starts anew where it detects drift."""
        for error in errors:
            self._watch.update(error)
            if self._watch.drift_detected:
                assert isinstance(self._net, GaussNewtonNets)  # the only ones with a detector
                self._net.relearn()

    def _error(self, predicted: Array, y: Any) -> float:
        """How wrong a prediction is."""
        raise NotImplementedError

    def _grows(self, targets: Sequence[Any]) -> bool:
        """Whether these targets need a network with more outputs than there are."""
        return self._net is None

    def _targets(self, targets: Sequence[Any]) -> Array | None:
        """Targets as the network takes them; None if there is nothing to learn from them yet."""
        raise NotImplementedError

    def _rows(self, X: Any) -> Array:
        return self._features.rows(*table_of(X))

    def _check(self, y: Any) -> None:
        """ValueError for a target that cannot be learnt."""
        raise NotImplementedError
