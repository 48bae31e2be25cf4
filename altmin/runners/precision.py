"""The precision of products; everything else is always float32."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from altmin.calculus.context import LOCAL, Context
from altmin.common.errors import unknown

PRECISIONS = {"float32": (False, False), "tf32": (True, False), "bf16": (False, True)}
"""Whether a GPU may form a float32 product in tf32, and whether operands are rounded to bfloat16."""
NAMES = tuple(PRECISIONS)


@contextmanager
def using(name: str) -> Iterator[Context]:
    """Give the context of steps whose products have this precision; tf32 is set in the whole process meanwhile, as
    torch has it.

    "float32" forms every product in float32, convolutions too, where torch's own choice on a GPU is tf32. "tf32" lets a
    GPU read float32 operands with 11 significant bits and changes nothing on a CPU. "bf16" rounds the
    operands of products with weights to 8 significant bits (calculus/products.py); what comes out, and all that lasts
    from step to step, is float32. Backprop gets torch.autocast around forward pass and loss.

    >>> with using("bf16") as context:
    ...     context.bf16
    True
    """
    if name not in PRECISIONS:
        raise unknown("precision", name, NAMES)
    tf32, bf16 = PRECISIONS[name]
    matmul, cudnn, before = torch.backends.cuda.matmul, torch.backends.cudnn, _in_words()
    flags = matmul.allow_tf32, cudnn.allow_tf32
    try:
        matmul.allow_tf32 = cudnn.allow_tf32 = tf32
        yield Context(bf16=bf16)
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = flags
        if before is not None and before != _in_words():  # the flag does not distinguish "medium"
            torch.set_float32_matmul_precision(before)


def current(device: torch.device, context: Context = LOCAL) -> str:
    """Return the precision in which products of float32 are formed on a device, in a context."""
    if context.bf16:
        return "bf16"
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


def check(name: str, device: torch.device) -> None:
    """Raise ValueError for a precision that is unknown, or that the device does not have."""
    if name not in PRECISIONS:
        raise unknown("precision", name, NAMES)
    if name not in available(device):
        raise ValueError(f"precision {name!r} is of GPUs only and would change nothing on the {device.type}")


def available(device: torch.device) -> tuple[str, ...]:
    """Return the precisions that differ on a device."""
    return NAMES if device.type == "cuda" else ("float32", "bf16")
