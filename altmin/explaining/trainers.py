"""A copy of a trainer to experiment with, so that the original does not change."""

import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from altmin import methods
from altmin.core.trainer import AltMin


def trainer_of(subject: nn.Module | AltMin, method: str, options: Mapping[str, Any]) -> AltMin:
    """Return a copy of a trainer, or the trainer that a method with these options makes of a model's copy. ValueError
    for options beside a trainer, and for a method without codes."""
    if isinstance(subject, AltMin):
        if options:
            raise ValueError(f"a trainer has its own options; leave out {', '.join(options)}")
        return copy.deepcopy(subject)
    model = copy.deepcopy(subject) if isinstance(subject, nn.Module) else subject
    parts = {name: copy.deepcopy(options[name]) for name in ("codes", "penalty") if name in options}
    trainer = methods.create(method, model, **{**options, **parts})
    if not isinstance(trainer, AltMin):
        raise ValueError(f"{method!r} moves no codes in a step; give am-adam, am-sgd or am-mem")
    return trainer


def random_state(x: Any) -> AbstractContextManager[None]:
    """Restore the state of the random numbers at the end."""
    device = getattr(x, "device", None)
    return torch.random.fork_rng([device] if device is not None and device.type == "cuda" else [])
