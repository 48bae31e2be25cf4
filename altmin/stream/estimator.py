"""What the estimators for streams have in common: features that join in, running statistics, steps."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from altmin.common.errors import demand
from altmin.methods import Method
from altmin.stream import growth, settings
from altmin.stream.features import Array, Features, RunningStatistics, table_of


class OnlineNetwork:
    """A network with an input for each feature seen, trained a sample or a mini-batch at a time.

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
    ):
        self.hidden, self.method, self.lr, self.options = hidden, method, lr, options
        self.standardise, self.absent, self.forget = standardise, absent, forget
        self.batch_size, self.seed = batch_size, seed
        self._begin()

    def _begin(self) -> None:
        """Checks the options, and makes what is kept from sample to sample."""
        if not isinstance(self.hidden, tuple):
            raise TypeError(f"hidden is a tuple with the width of each hidden layer, given {self.hidden!r:.60}")
        for width in self.hidden:
            demand(type(self).__name__, "hidden", width, low=1, whole=True)
        demand(type(self).__name__, "batch_size", self.batch_size, low=1, whole=True)
        settings.check(self.method, self.lr, self.options)
        self._features = Features(self.absent)
        self._statistics = RunningStatistics(0, self.forget)
        self._random = np.random.default_rng(self.seed)
        self._trained: Method | None = None

    @property
    def network(self) -> nn.Module | None:
        """The network, an ordinary module with an input for each of `feature_names`; None before it has learnt."""
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
        """Of one sample, (outputs,)."""
        return self._outputs(self._features.row(x)[None])[0]

    @torch.no_grad()
    def _outputs(self, rows: Array) -> Tensor:
        assert self._trained is not None
        found: Tensor = self._trained.model(self._inputs(rows))
        return found

    def _learn(self, rows: Array, targets: Sequence[Any]) -> None:
        """Takes rows (samples, columns) whose features have columns already, `batch_size` of them at a time."""
        for start in range(0, len(rows), self.batch_size):
            part = rows[start : start + self.batch_size]
            for row in part:
                self._statistics.update(row)
            y = self._targets(targets[start : start + self.batch_size])
            if y is not None:
                assert self._trained is not None
                self._trained.step(self._inputs(part), y)

    def _targets(self, targets: Sequence[Any]) -> Tensor | None:
        """Targets as the loss takes them; None if there is nothing to learn from them yet."""
        raise NotImplementedError

    def learn_one(self, x: Mapping[Hashable, Any], y: Any) -> None:
        """Learns from one sample. ValueError or TypeError, and nothing changes, for one that cannot be learnt from."""
        new = self._features.new(x)
        row = self._features.row(x, new)
        self._check(y)
        self._admit(new)
        self._learn(row[None], [y])

    def learn_many(self, X: Any, y: Any) -> None:
        """Learns from a DataFrame, a feature in each column (NaN: absent), and a Series of targets, in this order."""
        columns, table = table_of(X)
        targets = y.tolist() if hasattr(y, "tolist") else list(y)
        if len(targets) != len(table):
            raise ValueError(f"as many targets as samples are needed: {len(table)} samples, {len(targets)} targets")
        new = self._features.new(columns)
        rows = self._features.rows(columns, table, new)
        for target in targets:
            self._check(target)
        self._admit(new)
        self._learn(rows, targets)

    def _rows(self, X: Any) -> Array:
        return self._features.rows(*table_of(X))

    def _check(self, y: Any) -> None:
        """ValueError for a target that cannot be learnt."""
        raise NotImplementedError
