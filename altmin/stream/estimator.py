"""What the estimators for streams have in common: features that join in, running statistics, steps."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from altmin.common.errors import Diverged, demand
from altmin.common.swap import changed
from altmin.core.weights.local import can_follow
from altmin.methods import Method
from altmin.methods.backprop import Backprop
from altmin.stream import growth, settings
from altmin.stream.features import Array, Features, RunningStatistics, demand_sample, table_of, targets_of

STATISTICS = ("_statistics", "_target")
"""What every sample changes, besides the network by a step of its own."""
STATE = (*STATISTICS, "_features", "_classes", "_random", "_trained")
"""What a sample can change."""


class OnlineNetwork:
    """A network with an input for each feature seen, trained a sample or a mini-batch at a time.

    Parameters
    ----------
    hidden
        The width of each hidden layer, of rectified units; () for a linear model.
    method
        How it learns: "am-adam", "am-mem-fitted" (with a memory of co-activations), "am-sgd"; "adam" and "sgd" by
        backprop.
    lr
        The learning rate; None for that of `settings.DEFAULTS`. Of "am-mem-fitted" it is that of the output layer.
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
    max_features
        The largest number of features; a sample with more is refused. None for that of `settings.max_features`.
    """

    _loss: type[nn.Module]

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
        max_features: int | None = None,
    ):
        self.hidden, self.method, self.lr, self.options = hidden, method, lr, options
        self.standardise, self.absent, self.forget = standardise, absent, forget
        self.batch_size, self.max_features, self.seed = batch_size, max_features, seed
        self._begin()

    def _begin(self) -> None:
        """Checks the options, and makes what is kept from sample to sample."""
        if not isinstance(self.hidden, tuple):
            raise TypeError(f"hidden is a tuple with the width of each hidden layer, given {self.hidden!r:.60}")
        for width in self.hidden:
            demand(type(self).__name__, "hidden", width, low=1, whole=True)
        demand(type(self).__name__, "batch_size", self.batch_size, low=1, whole=True)
        settings.check(self.method, self.lr, self.options)
        self._most = settings.max_features(self.method) if self.max_features is None else self.max_features
        demand(type(self).__name__, "max_features", self._most, low=1, whole=True)
        self._features = Features(self.absent)
        self._statistics = RunningStatistics(0, self.forget)
        self._random = np.random.default_rng(self.seed)
        self._trained: Method | None = None

    @property
    def network(self) -> nn.Module | None:
        """The network, an ordinary module with an input for each of `feature_names`; None before it has learnt. It is
        another object after a table or a new feature has been learnt."""
        return None if self._trained is None else self._trained.model

    @property
    def feature_names(self) -> list[Hashable]:
        """The features seen so far, in the order of the network's inputs."""
        return list(self._features.names)

    def _build(self, outputs: int) -> None:
        """Makes the network for the features seen so far."""
        widths, seed = (max(1, len(self._features.names)), self.hidden, outputs), int(self._random.integers(2**31))
        self._trained = settings.build(self.method, widths, self._loss(), self.lr, self.options, seed)

    def _admit(self, new: Sequence[Hashable]) -> None:
        """Gives features that appear for the first time a column, statistics and an input."""
        if not new:
            return
        self._features.add(new)
        self._statistics.grow(len(new), seen=self.absent == "zero")
        if self._trained is None:
            return
        units, inputs = next(self._trained.model.parameters()).shape
        more = len(self._features.names) - inputs  # a network that was built without any feature has one input
        if more:
            he = (2 / (inputs + more)) ** 0.5  # as the others were drawn
            growth.add_inputs(self._trained, torch.from_numpy(self._random.normal(0.0, he, (units, more))))

    def _inputs(self, rows: Array) -> Tensor:
        """Rows (samples, columns) as the network takes them."""
        shown = self._statistics.standardise(rows) if self.standardise else np.nan_to_num(rows, nan=0.0)
        return torch.from_numpy(shown if shown.shape[1] else np.zeros((len(rows), 1)))

    def _output(self, x: Mapping[Hashable, Any]) -> Tensor:
        """Of one sample, (outputs,). ValueError if it is not finite."""
        demand_sample(x)
        return self._outputs(self._features.row(x)[None])[0]

    @torch.no_grad()
    def _outputs(self, rows: Array) -> Tensor:
        assert self._trained is not None
        found: Tensor = self._trained.model(self._inputs(rows))
        if not bool(found.isfinite().all()):
            raise ValueError(
                "the network's output is not finite: the sample's values or the network's weights are too large; give "
                "smaller values, or a new estimator a smaller lr"
            )
        return found

    def learn_one(self, x: Mapping[Hashable, Any], y: Any) -> None:
        """Learns from one sample. ValueError or TypeError for one that cannot be learnt from, `Diverged` if a number of
        the step is not finite; then nothing has changed."""
        demand_sample(x)
        new = self._features.new(x)
        row = self._features.row(x, new)
        self._check(y)
        self._learn(new, row[None], [y])

    def learn_many(self, X: Any, y: Any) -> None:
        """Learns from a DataFrame, a feature in each column (NaN: absent), and a Series of targets, in this order: from
        all of it or, with the errors of `learn_one`, from none."""
        (columns, table), targets = table_of(X), targets_of(y)
        if len(targets) != len(table):
            raise ValueError(f"as many targets as samples are needed: {len(table)} samples, {len(targets)} targets")
        new = self._features.new(columns)
        rows = self._features.rows(columns, table, new)
        for target in targets:
            self._check(target)
        self._learn(new, rows, targets)

    def _learn(self, new: Sequence[Hashable], rows: Array, targets: Sequence[Any]) -> None:
        """Takes rows (samples, columns) with these new features, `batch_size` of them at a time."""
        if len(self._features.names) + len(new) > self._most:
            raise ValueError(
                f"{len(self._features.names) + len(new):,} features are more than max_features={self._most:,}; give "
                f"{type(self).__name__} a larger one, or fewer features (nothing was learnt)"
            )
        alone = len(rows) <= self.batch_size and not new and not self._grows(targets)
        with changed(self, *(STATISTICS if alone else STATE)) as after:
            after._admit(new)
            for start in range(0, len(rows), self.batch_size):
                part = rows[start : start + self.batch_size]
                for row in part:
                    after._statistics.update(row)
                y = after._targets(targets[start : start + self.batch_size])
                if y is not None:
                    after._step(after._inputs(part), y)  # the last change if alone; it fails without changing anything

    def _step(self, x: Tensor, y: Tensor) -> None:
        """One step of the method. `Diverged`, and nothing changes, if it would not be finite."""
        assert self._trained is not None
        if not isinstance(self._trained, Backprop):
            self._trained.step(x, y)
            return
        self._trained.differentiate(x, y)
        if not can_follow(self._trained.optimizer):
            raise Diverged("the weights' next value", "lower the learning rate, or give inputs of a smaller size")
        self._trained.update()

    def _grows(self, targets: Sequence[Any]) -> bool:
        """Whether these targets need a network with more outputs than there are."""
        return self._trained is None

    def _targets(self, targets: Sequence[Any]) -> Tensor | None:
        """Targets as the loss takes them; None if there is nothing to learn from them yet."""
        raise NotImplementedError

    def _rows(self, X: Any) -> Array:
        return self._features.rows(*table_of(X))

    def _check(self, y: Any) -> None:
        """ValueError for a target that cannot be learnt."""
        raise NotImplementedError
