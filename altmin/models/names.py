"""The names by which the command line knows the models."""

import functools
import math
import re
from collections.abc import Callable, Sequence

from torch import nn

from altmin.common.errors import unknown
from altmin.layers import Sign, Staircase
from altmin.models.convolutional import lenet5
from altmin.models.fully_connected import binary_mlp, mlp, residual_mlp
from altmin.models.gpt import gpt
from altmin.models.own import imported
from altmin.models.recurrent import elman, gru, lstm, min_gru
from altmin.models.resnet import resnet18

KNOWN = [
    *("mlp-2x100", "mlp-2x500", "mlp-1x300", "mlp-8x100", "mlp-20x100", "tanh-2x500", "residual-32x32"),
    *("linear", "lenet5", "elman-15", "elman-50", "gru-1x64", "lstm-1x64", "mingru-1x64", "binary-500"),
    *("staircase-500", "resnet18-64", "gpt-6x128"),
]
"""Examples for the error about an unknown name; widths and depths are free."""
FORMS = re.compile(
    r"linear|lenet5|(mlp|tanh|residual|gpt|gru|lstm|mingru)-[1-9]\d*x[1-9]\d*|(binary|staircase|elman|resnet18)-[1-9]\d*"
)


READS: dict[str, tuple[Callable[[tuple[int, ...]], bool], str, str]] = {
    "lenet5": (
        lambda shape: len(shape) == 3 and shape[1:] == (28, 28),
        "images of channels x 28 x 28",
        "an mlp-DEPTHxWIDTH, or MNIST or Fashion-MNIST",
    ),
    "resnet18": (
        lambda shape: len(shape) == 3 and min(shape[1:]) >= 8,
        "images of channels x height x width, 8 x 8 or more",
        "--data cifar10",
    ),
    "elman": (lambda shape: len(shape) == 2, "sequences of steps x features", "--data mnist-sequential"),
    **dict.fromkeys(
        ("gru", "lstm", "mingru"),
        (lambda shape: len(shape) == 2, "sequences of steps x features", "--data mnist-rows"),
    ),
}
"""Models restricted to some sample shapes: a test of the shape, its description, and an alternative."""
STEPS = functools.partial(Staircase, 4)
MAKERS: dict[str, Callable[..., nn.Sequential]] = {
    "linear": lambda shape, outputs: mlp(math.prod(shape), [], outputs),
    "mlp": lambda shape, outputs, depth, width: mlp(math.prod(shape), [width] * depth, outputs),
    "tanh": lambda shape, outputs, depth, width: mlp(math.prod(shape), [width] * depth, outputs, nn.Tanh),
    "residual": lambda shape, outputs, depth, width: residual_mlp(width, depth, math.prod(shape), outputs),
    "binary": lambda shape, outputs, width: binary_mlp(math.prod(shape), [width] * 2, outputs, (Sign, nn.Tanh)),
    "staircase": lambda shape, outputs, width: binary_mlp(math.prod(shape), [width] * 2, outputs, (STEPS, nn.Tanh)),
    "lenet5": lambda shape, outputs: lenet5(outputs, shape[0]),
    "resnet18": lambda shape, outputs, width: resnet18(width, outputs, shape[0]),
    "elman": lambda shape, outputs, units: elman(units, shape[0], shape[1], outputs),
    "gru": lambda shape, outputs, layers, units: gru(units, layers, shape[1], outputs),
    "lstm": lambda shape, outputs, layers, units: lstm(units, layers, shape[1], outputs),
    "mingru": lambda shape, outputs, layers, units: min_gru(units, layers, shape[1], outputs),
    "gpt": lambda shape, outputs, layers, width: gpt(layers, width, _heads(width), shape[0], outputs),
}
"""(shape of a sample, outputs, the numbers in the name) -> model."""


def _heads(width: int) -> int:
    return next(h for h in range(max(1, width // 32), 0, -1) if width % h == 0)


def create(name: str, sample_shape: Sequence[int], outputs: int, tokens: bool = False) -> nn.Module:
    """A model by its name, for samples of the given shape.

    `mlp-DEPTHxWIDTH`, `tanh-DEPTHxWIDTH` (the same with tanh), `linear` (no hidden layer), `residual-DEPTHxWIDTH`,
    `lenet5`, `elman-UNITS`, `gru-LAYERSxUNITS`, `lstm-LAYERSxUNITS`, `mingru-LAYERSxUNITS`, `binary-WIDTH` (sign, then
    tanh), `staircase-WIDTH` (4 levels, then tanh), `resnet18-WIDTH`, and `gpt-LAYERSxWIDTH` with width // 32 heads, or
    the next smaller number that divides the width. `MODULE:FUNCTION` is a model of one's own, which the function makes
    of the shape of a sample and the number of outputs.
    tokens: whether samples are int64 tokens from 0 to outputs - 1, which only a gpt accepts.

    Raises ValueError for another name, and for samples of a kind or shape that the model cannot take.

    >>> create("mlp-1x300", (28,), 2)[1]
    Linear(in_features=28, out_features=300, bias=True)
    """
    if ":" in name:
        return imported(name, sample_shape, outputs, tokens)
    if not FORMS.fullmatch(name):
        raise unknown("model", name, KNOWN)
    kind, _, sizes = name.partition("-")
    shape = tuple(sample_shape)
    if kind == "gpt" and not (tokens and len(shape) == 1):
        raise ValueError(
            f"{name} reads sequences of tokens, these samples are {shape} numbers; choose --data shakespeare"
        )
    if tokens and kind != "gpt":
        raise ValueError(f"{name} reads numbers, these samples are sequences of tokens; choose a gpt-LAYERSxWIDTH")
    takes, what, instead = READS.get(kind, (lambda shape: True, "", ""))
    if not takes(shape):
        raise ValueError(f"{name} reads {what}, these samples are {shape}; choose {instead}")
    return MAKERS[kind](shape, outputs, *map(int, sizes.split("x") if sizes else ()))
