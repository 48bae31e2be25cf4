"""What `train` and `compare` share: the machine and the samples; and the text that a trained model writes."""

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from altmin import data, models
from altmin.cli import own_data, parse
from altmin.cli.options import OfRuns
from altmin.common.devices import usable
from altmin.common.errors import unknown
from altmin.common.memory import keep_freed_memory
from altmin.data.shakespeare import Text
from altmin.runners import precision
from altmin.training.config import RunConfig
from altmin.training.samples import Samples


def chosen_device(given: str) -> str:
    """A device by name; "auto" is cuda if each process of this machine can have a GPU of its own, else cpu."""
    if given != "auto":
        return given
    return "cuda" if torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1")) else "cpu"


def prepare(device: str, threads: int | None, products: str) -> torch.device:
    """The device by name; sets the number of CPU threads and lets the process keep freed memory. Raises ValueError if
    this machine lacks the device, or the device products of this precision."""
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (index and not (index.isascii() and index.isdigit())):
        raise unknown("device", device, ["cpu", "cuda"])
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device {device!r} is not available: torch {torch.__version__} finds "
            f"{torch.cuda.device_count()} CUDA devices here; use --device cpu"
        )
    if threads is not None:
        torch.set_num_threads(threads)
    precision.check(products, torch.device(kind))
    keep_freed_memory()
    found = usable("--device", device)
    if found.type == "cuda" and found.index is not None:
        torch.cuda.set_device(found)  # on which steps are recorded
    return found


def configured(given: OfRuns, device: torch.device, known: own_data.Data, **more: Any) -> RunConfig:
    """The run that a command's options describe, on these data."""
    settings = {each.name: getattr(given, each.name) for each in fields(RunConfig) if hasattr(given, each.name)}
    chosen: dict[str, Any] = {
        "data": known.name,
        "device": device,
        "metrics": own_data.metrics(own_data.target_of(known)),
        "part": "validation" if given.validation else "test",
        "eval_batches": parse.numbers("--eval-batches", given.eval_batches, int),
        "augment": augmentation(given.augment, known),
    }
    return RunConfig(**{**settings, **chosen, **more})


def load(run: RunConfig, known: own_data.Data, data_dir: Path | None) -> tuple[Samples, Samples]:
    """A run's training samples and those that it is measured on, on its device."""
    x, y = (each[: run.limit].to(run.device) for each in own_data.part_of(known, "train", data_dir))
    seen, labels = (each.to(run.device) for each in own_data.part_of(known, run.part, data_dir))
    return (x, y), (seen, labels)


def augmentation(given: str | None, known: own_data.Data) -> str | None:
    """The augmentation for this data: as given, or random windows of a text. "none" is none."""
    if given is None:
        return "random-windows" if isinstance(known, Text) else None
    return None if given == "none" else given


def chosen(given: OfRuns, run: RunConfig) -> dict[str, Any]:
    """The settings of a run that were chosen for it, as a settings file has them."""
    found = {name: getattr(given, name) for name in ("device", "epochs", "batch_size")}
    return {**found, "threads": torch.get_num_threads(), "augment": run.augment or "none"}


def check_sample(model: str, name: str, seeds: int) -> None:
    """ValueError unless a model by this name writes text after training on this data, and there is one seed."""
    if not model.startswith("gpt-") or not isinstance(data.dataset(name), Text):
        raise ValueError(f"--sample prints text of a gpt, given {model} on {name}; try gpt-6x128 on shakespeare")
    if seeds > 1:
        raise ValueError(f"--sample prints the text of one model, given --seeds {seeds}; leave one of them out")


def sampled(model: nn.Module, name: str, length: int, seed: int) -> str:
    """Text of the given length that the model writes after the end of a line."""
    known = data.dataset(name)
    assert isinstance(known, Text)
    assert isinstance(model, nn.Sequential)
    return known.decode(models.sample(model, known.encode("\n"), length, seed=seed))
