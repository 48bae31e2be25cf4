"""`RunConfig`: the settings of a run. `fit`, ensembles, epochs on a GPU, the commands, figures and searches all read
it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypeVar

import torch

from altmin.common.errors import unknown

CPU = torch.device("cpu")
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class RunConfig:
    """All settings of a training run.

    method, model, data: names, of runs that are built from them (`Trial`); `fit` is given the objects. options: the
    method's. limit: the number of training samples, None for all. part: of the data that the model is measured on.
    The others are explained by `fit`.
    """

    method: str = ""
    model: str = ""
    data: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 1
    batch_size: int | None = None
    schedule: str = "constant"
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
    epoch_batches: int | None = None
    metrics: Any = None
    scheduler: Any = None
    scheduler_every: str = "epoch"
    checkpoint: str | Path | None = None
    checkpoint_every: int | None = None
    resume: bool = False


OF_BATCHES = ("batch_size", "epoch_batches", "metrics", "eval_batches", "schedule", "warmup", "augment", "precision")
"""The settings that `fit` and `fit_ensemble` have in common, beside the number of epochs."""


def takes(*names: str) -> Callable[[Function], Function]:
    """A decorator of a function with **settings: these are the fields of `RunConfig` with the given names, and its
    signature shows them. TypeError for another name."""

    def decorate(function: Function) -> Function:
        own = [p for p in signature(function).parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        settings = {each.name: each for each in fields(RunConfig)}
        own += [Parameter(n, Parameter.KEYWORD_ONLY, default=settings[n].default) for n in names]

        @wraps(function)
        def front(*args: Any, **given: Any) -> Any:
            known = [p.name for p in own]
            for name in given:
                if name not in known:
                    raise TypeError(str(unknown(f"setting of {function.__name__},", name, known)))
            return function(*args, **given)

        front.__signature__ = signature(function).replace(parameters=own)  # type: ignore[attr-defined]
        return front  # type: ignore[return-value]

    return decorate
