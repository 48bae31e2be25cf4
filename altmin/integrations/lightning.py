"""A Lightning module that trains by a method of altmin: checkpoints, `global_step`, schedulers, callbacks as usual."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from altmin.common.optional import need
from altmin.integrations.optimizer import MethodOptimizer
from altmin.methods.protocol import Method
from altmin.runners.distributed import Distributed

need("lightning", what="altmin.integrations.lightning")

import lightning.pytorch as pl
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import move_data_to_device

Metric = Callable[[Tensor, Tensor], Tensor]
"""(output, y) -> a mean over the batch."""


def accuracy(output: Tensor, y: Tensor) -> Tensor:
    """Return the fraction of samples classified correctly: outputs (samples, classes), labels (samples,)."""
    return (output.argmax(1) == y).float().mean()


class AltMinModule(pl.LightningModule):
    """Trains `method.model` by the method's own step, with Lightning's manual optimization.

    Every batch is (x, y), or (x, y, rows) for a method that `takes_rows`. `trainer.global_step` counts the method's
    steps, and `method.end_epoch` is called after the last batch of an epoch, before validation. A checkpoint holds the
    method's `state_dict` as that of the optimizer.

    scheduler: a function from an optimizer to a torch scheduler, or to Lightning's dict of one ("scheduler",
    "interval", "frequency", and "monitor" for ReduceLROnPlateau); alone it steps once per epoch. metrics: functions
    (output, y) -> mean over the batch, by name. Logged are `train_loss` (of a batch before its step), `val_loss`,
    `test_loss` and each metric under `val_` and `test_`; losses where `method.loss` is a function (output, y).

    With several processes (strategy="ddp") each has its own rows of a mini-batch, equally many, as Lightning deals them
    out: a step is that of one process with the rows of all.
    """

    def __init__(
        self,
        method: Method,
        scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
        metrics: Mapping[str, Metric] | None = None,
    ):
        super().__init__()
        self.automatic_optimization = False
        self.model, self.method, self.scheduler = method.model, method, scheduler
        self.metrics = dict(metrics or {})
        self.distributed: Distributed | None = None
        self.plan: dict[str, Any] = {}
        if scheduler is not None and method.optimizer is None:
            raise ValueError(f"{type(method).__name__} has no learning rate for a scheduler to move; leave it out")

    def forward(self, x: Tensor) -> Any:
        return self.model(x)

    def configure_optimizers(self) -> Any:
        """Return the method as an optimizer, and the scheduler. Moments and memories follow the model to its device."""
        self.method.load_state_dict(move_data_to_device(self.method.state_dict(), self.device))
        optimizer = MethodOptimizer(self.method)
        if self.scheduler is None:
            return optimizer
        self.plan = _plan(self.scheduler(optimizer))
        return [optimizer], [self.plan["scheduler"]]  # Lightning keeps its state; when it steps is left to us

    def on_fit_start(self) -> None:
        """Set up several processes. ValueError for a method or a strategy that supports only one."""
        self.distributed = None  # of a fit before that was interrupted
        if self.trainer.world_size == 1:
            return
        if getattr(self.method, "takes_rows", False):
            raise ValueError(
                f"{type(self.method).__name__} keeps variables for each sample, and is trained here in one process; "
                f"use devices=1, given {self.trainer.world_size}"
            )
        if not isinstance(self.trainer.strategy, DDPStrategy):
            strategy = type(self.trainer.strategy).__name__
            raise ValueError(f'AltMinModule trains in several processes with strategy="ddp", given {strategy}')
        self.distributed = Distributed(self.method)

    def on_fit_end(self) -> None:
        self.distributed = None

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        metrics = optimizer.step(lambda: self._step(*batch))
        self.log("train_loss", metrics.loss, batch_size=len(batch[0]), prog_bar=True)
        if self._due("step", batch_idx + 1):
            self.plan["scheduler"].step()
        if self.trainer.is_last_batch:
            (self.distributed or self.method).end_epoch()
            if self._due("epoch", self.current_epoch + 1):
                self.plan["scheduler"].step()

    def _step(self, x: Tensor, y: Tensor, *rows: Tensor) -> Any:
        if self.distributed is None:
            return self.method.step(x, y, *rows)
        rank, size = self.trainer.global_rank, self.trainer.world_size
        return self.distributed.step_share(x, y, rank * len(x), size * len(x))

    def on_train_epoch_end(self) -> None:
        """Step a scheduler that monitors a metric, which is known only after validation."""
        known = self.trainer.callback_metrics
        if self._due("epoch", self.current_epoch + 1, watching=True):
            if self.plan["monitor"] not in known:
                raise ValueError(f"the scheduler watches {self.plan['monitor']!r}; what is logged is {sorted(known)}")
            self.plan["scheduler"].step(known[self.plan["monitor"]])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self._evaluate("val", batch)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self._evaluate("test", batch)

    def predict_step(self, batch: Any, batch_idx: int = 0) -> Any:
        return self(batch[0] if isinstance(batch, list | tuple) else batch)

    def _evaluate(self, part: str, batch: Any) -> None:
        x, y = batch[:2]
        output, loss = self(x), getattr(self.method, "loss", None)
        measured = {"loss": loss, **self.metrics} if callable(loss) else self.metrics
        for name, measure in measured.items():
            self.log(f"{part}_{name}", measure(output, y), batch_size=len(x), prog_bar=True, sync_dist=True)

    def _due(self, interval: str, count: int, watching: bool = False) -> bool:
        """Return whether the scheduler steps after this number of batches of an epoch ("step"), or of epochs."""
        if not self.plan or (self.plan["interval"], _watches(self.plan)) != (interval, watching):
            return False
        return bool(count % self.plan["frequency"] == 0)


def _plan(made: Any) -> dict[str, Any]:
    """Lightning's dict of a scheduler with its defaults. ValueError if it watches a metric but not once per epoch."""
    plan = {"interval": "epoch", "frequency": 1, "monitor": None}
    plan |= made if isinstance(made, dict) else {"scheduler": made}
    if _watches(plan) and plan["interval"] != "epoch":
        raise ValueError(f'a scheduler that watches a metric has interval="epoch", given {plan["interval"]!r}')
    return plan


def _watches(plan: dict[str, Any]) -> bool:
    return isinstance(plan["scheduler"], ReduceLROnPlateau)
