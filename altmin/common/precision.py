"""The precision of products of float32 numbers, as torch sets it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from altmin.common.errors import unknown

NAMES = ("float32", "tf32", "bf16")


@contextmanager
def using(name: str) -> Iterator[None]:
    """Let a GPU form products in this precision meanwhile, by torch's settings of the process: "float32" in float32,
    convolutions too, where torch's own choice is tf32; "tf32" with 11 significant bits of the operands. "bf16" is
    `rounding`, on top of float32."""
    check(name)
    matmul, cudnn, before = torch.backends.cuda.matmul, torch.backends.cudnn, _in_words()
    flags = matmul.allow_tf32, cudnn.allow_tf32
    try:
        matmul.allow_tf32 = cudnn.allow_tf32 = name == "tf32"
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = flags
        if before is not None and before != _in_words():  # the flag does not distinguish "medium"
            torch.set_float32_matmul_precision(before)


def rounding(name: str | None, device: torch.device) -> AbstractContextManager[Any]:
    """Return the context of a step in this precision: torch.autocast for "bf16"."""
    return torch.autocast(device.type, torch.bfloat16) if name == "bf16" else nullcontext()


def current(device: torch.device, name: str | None = None) -> str:
    """Return the precision in which products of float32 are formed on a device. name: as of `rounding`."""
    if name == "bf16":
        return name
    flags = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    if device.type != "cuda" or flags == (False, False):
        return "float32"
    return "tf32" if all(flags) else f"tf32 of {'matrices' if flags[0] else 'convolutions'} alone"


def _in_words() -> str | None:
    """Return what torch.set_float32_matmul_precision has set; None where torch has no word for a mixture of flags."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def check(name: str, device: torch.device | None = None) -> None:
    """Raise ValueError for a precision that is unknown, or that the device does not have."""
    if name not in NAMES:
        raise unknown("precision", name, NAMES)
    if name == "tf32" and device is not None and device.type != "cuda":
        raise ValueError(f"precision {name!r} is of GPUs only and would change nothing on the {device.type}")
