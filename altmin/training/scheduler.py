"""torch's own learning-rate schedulers in a run: stepped after epochs or batches, kept in checkpoints."""

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from altmin.common.describe import describe, plain
from altmin.training.callbacks import column_of
from altmin.training.metrics import higher_is_better

Given = LRScheduler | Callable[[Any], LRScheduler]
"""A scheduler on the method's optimizer, or a function that makes one of it."""
MOVED = ("lr", "betas", "momentum")
"""Options of an optimizer that schedulers move."""


class TorchScheduler:
    """Steps a torch scheduler where `Schedule` would set rates.

    every: "epoch" or "batch". columns: those that are measured; a `ReduceLROnPlateau` gets the first, or "train_loss"
    if nothing is. One that a function makes belongs to the run: after it, the optimizer's groups are as before.
    """

    def __init__(self, given: Given, optimizer: Any, every: str, columns: Sequence[str]):
        if every not in ("epoch", "batch"):
            raise ValueError(f'scheduler_every of fit is "epoch" or "batch", given {every!r}')
        if not isinstance(optimizer, Optimizer):
            raise ValueError("this method has no torch optimizer whose rates a scheduler could move; leave it out")
        self.optimizer, self.by_epoch = optimizer, every == "epoch"
        self.own = not isinstance(given, LRScheduler)
        self.before = [_options(group) for group in optimizer.param_groups]
        try:
            self.scheduler = self._made(given)
            self.column = self._watched(columns)
        except Exception:
            self._restore()
            raise
        self.moves = True
        self.description = f"{type(self.scheduler).__name__} by {every}: {self._settings()}"

    def _made(self, given: Any) -> Any:
        """The scheduler; TypeError or ValueError if it is none, or one of another optimizer."""
        made = given(self.optimizer) if self.own and callable(given) else given
        if not isinstance(made, LRScheduler):
            raise TypeError(
                "scheduler of fit is one of torch.optim.lr_scheduler, or a function (optimizer) -> scheduler, given "
                f"{given!r:.60}"
            )
        if made.optimizer is not self.optimizer:
            raise ValueError("the scheduler moves another optimizer; build it on method.optimizer")
        return made

    def _watched(self, columns: Sequence[str]) -> str | None:
        """The column that the scheduler gets, if it gets one; ValueError if it takes the bad side for the good one."""
        if not isinstance(self.scheduler, ReduceLROnPlateau):
            return None
        if not self.by_epoch:
            raise ValueError('ReduceLROnPlateau looks at what an epoch measured; leave out scheduler_every="batch"')
        column = column_of("ReduceLROnPlateau", None, columns)
        higher = higher_is_better(column)
        if higher is not None and higher != (self.scheduler.mode == "max"):
            raise ValueError(
                f"ReduceLROnPlateau gets {column} here, of which {'more' if higher else 'less'} is better; give it "
                f'mode="{"max" if higher else "min"}"'
            )
        return column

    def _settings(self) -> str:
        """Its numbers at the start of a run, in which later ones do not count."""
        later = ("last_epoch", "best", "num_bad_epochs", "cooldown_counter", "T_cur", "T_i", "optimizer")
        settings = {
            name: value
            for name, value in vars(self.scheduler).items()
            if not name.startswith("_") and name not in later and not callable(value)
        }
        return ", ".join(f"{name}={describe(plain(value))}" for name, value in sorted(settings.items()))

    def begin(self, batches: int, epochs: int) -> None:
        """Nothing: the rates are where the scheduler has put them."""

    @contextmanager
    def during(self) -> Iterator[None]:
        """Within, the scheduler moves the rates; after it a run's own scheduler has left the optimizer as it was."""
        try:
            yield
        finally:
            self._restore()

    def after_batch(self, batches: int) -> None:
        if not self.by_epoch:
            self.scheduler.step()

    def after_epoch(self, epochs: int, row: Mapping[str, Any]) -> None:
        if self.by_epoch:
            self.scheduler.step(*([] if self.column is None else [row[self.column]]))

    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in self.scheduler.state_dict().items() if not callable(value)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.scheduler.load_state_dict(_typed(state, vars(self.scheduler)))

    def _restore(self) -> None:
        """Undoes what a scheduler of the run's own has done to the groups; other options, such as how steps are
        executed, are not its affair."""
        if self.own:
            for group, before in zip(self.optimizer.param_groups, self.before, strict=True):
                for name in set(group) - set(before) - {"params"}:
                    del group[name]
                group.update({k: v for k, v in before.items() if k in MOVED or k not in self.optimizer.defaults})


def _typed(state: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A state that was read from a checkpoint, where a Counter has become a dict, with the types of the scheduler's own
    attributes; also of the schedulers inside one."""
    found = copy.deepcopy(dict(state))
    for name, value in found.items():
        if isinstance(own.get(name), Counter):
            found[name] = Counter(value)
        elif name == "_schedulers":
            found[name] = [_typed(each, vars(inner)) for each, inner in zip(value, own[name], strict=True)]
    return found


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.clone() if isinstance(v, Tensor) else v for k, v in group.items() if k != "params"}
