"""Callbacks: actions after batches and epochs, which may stop a run.

A callback is a function of the progress, called after every epoch, or an object with any of these methods:

    on_start(progress)       before a run, and before the state of one that goes on is loaded
    after_step(model)        after every step of training, before anything is measured
    evaluated_model(model)   the model that is measured in place of the trained one
    on_batch_end(progress)   after every batch
    on_epoch_end(progress)   after every epoch and its row
    on_end(progress)         after the run, unless it raises
    close()                  at the very end, whatever happens
    state_dict(), load_state_dict(state)   what a run that goes on needs; saved in checkpoints

`on_batch_end`, `on_epoch_end` and a function stop the run by returning True; they are called before a checkpoint is
written. `for_one` is True of a callback that follows one model, and cannot follow an ensemble.

Of a run on several ranks (`Distributed`) every rank has the callbacks and calls them, and must come to the same
decisions, as it does by the numbers of a row; at the end of an epoch it is enough that one rank stops.
`first_rank_only` is True of a callback that shows or writes something: other ranks than the first leave it out.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from altmin.common.describe import describe
from altmin.common.errors import demand, demand_fraction, shown
from altmin.common.state import matched
from altmin.training.evaluate import higher_is_better

HOOKS = ("on_start", "after_step", "evaluated_model", "on_batch_end", "on_epoch_end", "on_end")


class Callbacks:
    """The callbacks of a run. Those that change which model is measured come first, since others may look at it.

    first: whether this is the first rank, or the only one."""

    def __init__(self, callbacks: Sequence[Any] | Any | None, first: bool = True):
        every = list(callbacks) if isinstance(callbacks, Sequence) else [] if callbacks is None else [callbacks]
        for item in every:
            if isinstance(item, type) or not (_has_hooks(item) or callable(item)):
                raise TypeError(f"a callback is a function or has methods such as on_epoch_end, given {shown(item)}")
        active = [callback for callback in every if first or not getattr(callback, "first_rank_only", False)]
        active.sort(key=lambda callback: not hasattr(callback, "evaluated_model"))
        self.with_state = [callback for callback in active if hasattr(callback, "state_dict")]
        self.all = [callback if _has_hooks(callback) else EachEpoch(callback) for callback in active]
        self.after_step, self.on_batch_end = self._hooks("after_step"), self._hooks("on_batch_end")

    def _hooks(self, name: str) -> list[Callable[..., Any]]:
        return [getattr(callback, name) for callback in self.all if hasattr(callback, name)]

    @property
    def stopped(self) -> bool:
        """Return whether a callback has stopped the run for good, so that it does not resume from a checkpoint."""
        return any(getattr(callback, "stopped", False) for callback in self.all)

    def call(self, name: str, *progress: Any) -> bool:
        """Call every callback's method of this name, and return whether one returns True. Other values, such as
        numbers, are ignored."""
        answers = [hook(*progress) for hook in self._hooks(name)]
        return any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)

    def evaluated(self, model: nn.Module) -> nn.Module:
        for hook in self._hooks("evaluated_model"):
            model = hook(model)
        return model


def _has_hooks(callback: Any) -> bool:
    return any(hasattr(callback, name) for name in HOOKS)


class EachEpoch:
    """A function of the progress that is called after every epoch."""

    def __init__(self, function: Callable[[Any], Any]):
        self.on_epoch_end = function


class EachBatch:
    """A function of the progress that is called after every batch instead of every epoch."""

    def __init__(self, function: Callable[[Any], Any]):
        self.on_batch_end = function


class Monitor:
    """The common part of `EarlyStopping` and `BestWeights`: the best value so far of a column of the epochs' rows.

    monitor: the column, such as "test_loss"; None for the first that is measured, or else "train_loss". mode: "min" or
    "max", which values are better; None if the metric's name implies it. min_delta: by how much a better value must be
    better. NaN is never better.
    """

    for_one = True
    fresh: Mapping[str, Any] = {"best": None, "best_epoch": 0}
    """Values of the attributes that a checkpoint has, at the start of a run."""
    best: float | None
    best_epoch: int

    def __init__(self, monitor: str | None = None, mode: str | None = None, min_delta: float = 0.0):
        if mode not in (None, "min", "max"):
            raise ValueError(f'mode of {type(self).__name__} is "min" or "max", given {mode!r}')
        self.monitor, self.mode, self.min_delta = monitor, mode, min_delta
        self.load_state_dict(self.fresh)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(monitor={self.monitor!r}, mode={self.mode!r}, min_delta={self.min_delta})"

    def on_start(self, progress: Any) -> None:
        """Reset. ValueError if there is no such column, or if it is unknown which values are better."""
        self.load_state_dict(self.fresh)
        self.column = column_of(self.monitor, progress.columns)
        higher = higher_is_better(self.column) if self.mode is None else self.mode == "max"
        if higher is None:
            raise ValueError(f'is more of {self.column} better, or less? give mode="max" or "min"')
        self.sign = 1.0 if higher else -1.0

    def better(self, progress: Any) -> bool:
        """Return whether the epoch's value is the best so far; if so, store it."""
        value = float(progress.row[self.column])
        if value != value or (self.best is not None and not self.sign * (value - self.best) > self.min_delta):
            return False
        self.best, self.best_epoch = value, progress.epoch
        return True

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.fresh}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        vars(self).update(copy.deepcopy({name: state[name] for name in self.fresh}))


class EarlyStopping(Monitor):
    """Stops a run when `patience` epochs in a row have not been better than the best before them. See `Monitor`."""

    fresh: Mapping[str, Any] = {**Monitor.fresh, "waited": 0}
    waited: int

    def __init__(self, patience: int = 10, monitor: str | None = None, min_delta: float = 0.0, mode: str | None = None):
        demand("EarlyStopping", "patience", patience, low=1, whole=True)
        super().__init__(monitor, mode, min_delta)
        self.patience = patience

    def __repr__(self) -> str:
        return super().__repr__().replace("(", f"(patience={self.patience}, ", 1)

    @property
    def stopped(self) -> bool:
        return self.waited >= self.patience

    def on_epoch_end(self, progress: Any) -> bool:
        self.waited = 0 if self.better(progress) else self.waited + 1
        return self.stopped


class BestWeights(Monitor):
    """Gives the model, when the run ends, the weights and buffers it was measured with after its best epoch. See
    `Monitor`. The optimizer's state stays that of the end."""

    fresh: Mapping[str, Any] = {**Monitor.fresh, "weights": {}}
    weights: dict[str, Any]

    def on_epoch_end(self, progress: Any) -> None:
        if self.better(progress):
            self.weights = copy.deepcopy(dict(progress.evaluated.state_dict()))

    def on_end(self, progress: Any) -> None:
        if self.weights:
            progress.model.load_state_dict(self.weights)


def column_of(monitor: str | None, columns: Sequence[str]) -> str:
    """Return the column that is watched: `monitor`, else the first that is measured, else "train_loss". ValueError for
    one that a row does not have."""
    if monitor is None:
        return columns[0] if columns else "train_loss"
    if monitor not in (*columns, "train_loss"):
        raise ValueError(f"there is no column {monitor!r} to watch; a row has {', '.join(('train_loss', *columns))}")
    return monitor


class EMA:
    """A callback that averages weights and buffers after every step: a <- decay a + (1 - decay) w, from a = w after the
    first one, by torch's `AveragedModel` with `get_ema_multi_avg_fn(decay)`, which is `average`.

    Evaluations measure the average, and at the end of a run the model has it. Buffers that are no floating numbers are
    those of the model.
    """

    for_one = True

    def __init__(self, decay: float = 0.999):
        demand_fraction("EMA", decay=decay)
        self.decay = decay
        self.average: Any = None

    def __repr__(self) -> str:
        return f"EMA(decay={self.decay})"

    def on_start(self, progress: Any) -> None:
        update = get_ema_multi_avg_fn(self.decay)
        self.average = AveragedModel(progress.model, multi_avg_fn=update, use_buffers=True).requires_grad_(False)

    def after_step(self, model: nn.Module) -> None:
        self.average.update_parameters(model)
        for averaged, buffer in zip(self.average.module.buffers(), model.buffers(), strict=True):
            if not averaged.is_floating_point():
                averaged.copy_(buffer)

    def evaluated_model(self, model: nn.Module) -> nn.Module:
        return self.average.module if self.average.n_averaged else model

    def on_end(self, progress: Any) -> None:
        if self.average.n_averaged:
            progress.model.load_state_dict(self.average.module.state_dict())

    def state_dict(self) -> dict[str, Any]:
        return dict(self.average.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load; ValueError, and nothing changes, for weights of another model."""
        self.average.load_state_dict(matched(state, self.average.state_dict(), "the average of the weights"))


def settings_of(callbacks: Callbacks) -> str:
    """Return the settings of callbacks with a state, which distinguish one run from another."""
    return ", ".join(map(describe, callbacks.with_state))
