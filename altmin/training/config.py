"""`RunConfig`: the settings of a run. `fit`, the commands and the reproduction of the paper all read it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from altmin.common.errors import demand

CPU = torch.device("cpu")
NAMED = ("method", "model", "data", "options", "freeze_first", "limit", "part", "device")
"""The settings of runs that are built from names; `fit` is given the objects."""


@dataclass(frozen=True)
class RunConfig:
    """All settings of a training run.

    method, model, data: names, of runs that are built from them (`altmin.training.runs`). options: the method's. limit:
    the number of training samples, None for all. part: of the data that the model is measured on. The others are
    explained by `fit`.
    """

    method: str = ""
    model: str = ""
    data: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 1
    batch_size: int | None = None
    schedule: str = "auto"
    eval_batches: Sequence[int] = ()
    freeze_first: bool = False
    limit: int | None = None
    part: str = "test"
    augment: Any = None
    warmup: int = 0
    seed: int = 0
    device: torch.device = CPU
    precision: str | None = None
    record: bool | None = None
    metrics: Any = None
    scheduler: LRScheduler | Callable[[Any], LRScheduler] | None = None
    checkpoint: str | Path | None = None
    checkpoint_every: int | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "checkpoint_every"):
            if getattr(self, name) is not None:
                demand("fit", name, getattr(self, name), low=1, whole=True)
        demand("fit", "warmup", self.warmup, whole=True)
        if self.checkpoint is None and (self.resume or self.checkpoint_every is not None):
            raise ValueError("resume and checkpoint_every of fit need a checkpoint file")
