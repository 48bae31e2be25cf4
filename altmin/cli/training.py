"""What `train` and `compare` share: the machine and the samples."""

from pathlib import Path

import torch

from altmin import data
from altmin.errors import unknown
from altmin.execution import precision
from altmin.fit.samples import Samples


def prepare(device: str, threads: int | None, products: str) -> torch.device:
    """The device by name, with so many CPU threads set. Raises ValueError if this machine lacks the device, or the
    device products of this precision."""
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise unknown("device", device, ["cpu", "cuda"])
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device {device!r} is not available: torch {torch.__version__} finds "
            f"{torch.cuda.device_count()} CUDA devices here; use --device cpu"
        )
    if threads is not None:
        torch.set_num_threads(threads)
    precision.check(products, torch.device(kind))
    return torch.device(device)


def load(
    name: str, part: str, data_dir: Path | None, limit: int | None, device: torch.device
) -> tuple[Samples, Samples]:
    """The first `limit` training samples, and those of another part, "test" or "validation", on the device."""
    x, y = (each[:limit].to(device) for each in data.load(name, "train", data_dir))
    seen, labels = (each.to(device) for each in data.load(name, part, data_dir))
    return (x, y), (seen, labels)
