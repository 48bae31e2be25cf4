"""What `train` and `compare` share: the one configuration of a run, and its samples on their device."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from altmin import data
from altmin.cli import options
from altmin.training.config import RunConfig
from altmin.training.samples import Samples


def config(given: options.Runs, device: torch.device, **more: Any) -> RunConfig:
    """Return the run that a command's options describe."""
    settings = {each.name: getattr(given, each.name) for each in fields(RunConfig) if hasattr(given, each.name)}
    usual = "random-windows" if data.dataset(given.data).tokens else None
    chosen: dict[str, Any] = {
        "device": device,
        "batch_size": given.batch_size or 200,
        "part": "validation" if given.validation else "test",
        "eval_batches": [int(number) for number in options.words(given.eval_batches)],
        "augment": {None: usual, "none": None}.get(given.augment, given.augment),
    }
    return RunConfig(**{**settings, **chosen, **more})


def samples(run: RunConfig, data_dir: Path | None) -> tuple[Samples, Samples]:
    """Return the training samples and those that the run is measured on, on its device."""
    x, y = (part[: run.limit].to(run.device) for part in data.load(run.data, "train", data_dir))
    test_x, test_y = (part.to(run.device) for part in data.load(run.data, run.part, data_dir))
    return (x, y), (test_x, test_y)
