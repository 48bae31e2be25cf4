"""The precision of products; everything else is always float32."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from altmin.calculus.context import LOCAL, Context
from altmin.common.errors import unknown


class Precision(NamedTuple):
    """Whether a GPU may form a float32 product in tf32; whether operands are rounded to bfloat16."""

    tf32: bool
    bf16: bool


PRECISIONS = {
    "float32": Precision(tf32=False, bf16=False),
    "tf32": Precision(tf32=True, bf16=False),
    "bf16": Precision(tf32=False, bf16=True),
}
NAMES = tuple(PRECISIONS)


@contextmanager
def using(name: str) -> Iterator[Context]:
    """Gives the context of steps whose products have this precision; tf32 is set in the whole process meanwhile, as
    torch has it.

    "float32" forms every product in float32, convolutions too, where torch's own choice on a GPU is tf32. "tf32" lets a
    GPU read float32 operands with 11 significant bits and changes nothing on a CPU. "bf16" rounds the
    operands of products with weights to 8 significant bits (calculus/products.py); what comes out, and all that is kept
    from step to step, is float32. Backprop gets torch.autocast around forward pass and loss.

    >>> with using("bf16") as context:
    ...     context.bf16
    True
    """
    if name not in PRECISIONS:
        raise unknown("precision", name, NAMES)
    chosen = PRECISIONS[name]
    matmul, cudnn, before = torch.backends.cuda.matmul, torch.backends.cudnn, _in_words()
    flags = matmul.allow_tf32, cudnn.allow_tf32
    try:
        matmul.allow_tf32 = cudnn.allow_tf32 = chosen.tf32
        yield Context(bf16=chosen.bf16)
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = flags
        if before is not None and before != _in_words():  # the flag does not distinguish "medium"
            torch.set_float32_matmul_precision(before)


def current(device: torch.device, context: Context = LOCAL) -> str:
    """The precision in which products of float32 are formed on a device, in a context.

    >>> with using("bf16") as context:
    ...     current(torch.device("cpu"), context)
    'bf16'
    """
    if context.bf16:
        return "bf16"
    flags = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    if device.type != "cuda" or flags == (False, False):
        return "float32"
    return "tf32" if all(flags) else f"tf32 of {'matrices' if flags[0] else 'convolutions'} alone"


def _in_words() -> str | None:
    """What torch.set_float32_matmul_precision has set; None where torch has no word for a mixture of flags."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def check(name: str, device: torch.device) -> None:
    """ValueError for a precision that is unknown, or that the device does not have."""
    if name not in PRECISIONS:
        raise unknown("precision", name, NAMES)
    if name not in available(device):
        raise ValueError(
            f"precision {name!r} is of GPUs only and would change nothing on the {device.type}; "
            "use --device cuda, or --precision float32"
        )


def available(device: torch.device) -> tuple[str, ...]:
    """The precisions that differ on a device."""
    return NAMES if device.type == "cuda" else ("float32", "bf16")
