"""What `train` and `compare` share: the one configuration of a run, and its samples on their device."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from altmin.cli import options, own_data
from altmin.data.shakespeare import Text
from altmin.training.config import RunConfig
from altmin.training.samples import Samples


def config(given: options.Runs, device: torch.device, known: own_data.Data, **more: Any) -> RunConfig:
    """Return the run that a command's options describe on these data."""
    settings = {each.name: getattr(given, each.name) for each in fields(RunConfig) if hasattr(given, each.name)}
    usual = "random-windows" if isinstance(known, Text) else None
    chosen: dict[str, Any] = {
        "data": known.name,
        "device": device,
        "batch_size": given.batch_size or 200,
        "metrics": own_data.metrics(own_data.target_of(known)),
        "part": "validation" if given.validation else "test",
        "eval_batches": [int(number) for number in options.words(given.eval_batches)],
        "augment": {None: usual, "none": None}.get(given.augment, given.augment),
    }
    return RunConfig(**{**settings, **chosen, **more})


def samples(run: RunConfig, known: own_data.Data, data_dir: Path | None) -> tuple[Samples, Samples]:
    """Return the training samples and those that the run is measured on, on its device."""
    x, y = (part[: run.limit].to(run.device) for part in own_data.part_of(known, "train", data_dir))
    test_x, test_y = (part.to(run.device) for part in own_data.part_of(known, run.part, data_dir))
    return (x, y), (test_x, test_y)
