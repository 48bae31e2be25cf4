"""The names by which the command line knows the models."""

import functools
import math
import re
from collections.abc import Callable, Sequence

from torch import nn

from altmin.common.errors import unknown
from altmin.layers import Sign, Staircase
from altmin.models.convolutional import lenet5
from altmin.models.fully_connected import Activation, binary_mlp, mlp
from altmin.models.gpt import gpt
from altmin.models.recurrent import elman
from altmin.models.residual import residual_mlp
from altmin.models.resnet import resnet18

KNOWN = [
    *("mlp-2x100", "mlp-2x500", "mlp-1x300", "mlp-8x100", "mlp-20x100", "tanh-2x500", "residual-32x32"),
    *("linear", "lenet5", "elman-15", "elman-50", "binary-500", "staircase-500", "resnet18-64"),
    "gpt-6x128",
]
"""Examples for the error about an unknown name; widths and depths are free."""
FORMS = re.compile(
    r"linear|lenet5|(mlp|tanh|residual|gpt)-[1-9]\d*x[1-9]\d*|(binary|staircase|elman|resnet18)-[1-9]\d*"
)


Shape = tuple[int, ...]


def _mlp(activation: type[nn.Module]) -> "Maker":
    return lambda name, shape, outputs, depth=0, width=0: mlp(math.prod(shape), [width] * depth, outputs, activation)


def _binary(first: Activation) -> "Maker":
    return lambda name, shape, outputs, width: binary_mlp(math.prod(shape), [width] * 2, outputs, (first, nn.Tanh))


def _residual(name: str, shape: Shape, outputs: int, depth: int, width: int) -> nn.Sequential:
    return residual_mlp(width, depth, math.prod(shape), outputs)


def _lenet5(name: str, shape: Shape, outputs: int) -> nn.Sequential:
    if len(shape) != 3 or shape[1:] != (28, 28):
        raise ValueError(
            f"lenet5 reads images of channels x 28 x 28, these samples are {shape}; "
            "choose an mlp-DEPTHxWIDTH, or MNIST or Fashion-MNIST"
        )
    return lenet5(outputs, shape[0])


def _resnet18(name: str, shape: Shape, outputs: int, width: int) -> nn.Sequential:
    if len(shape) != 3 or min(shape[1:]) < 8:
        raise ValueError(
            f"{name} reads images of channels x height x width, 8 x 8 or more, these samples are {shape}; "
            "choose --data cifar10"
        )
    return resnet18(width, outputs, shape[0])


def _elman(name: str, shape: Shape, outputs: int, units: int) -> nn.Sequential:
    if len(shape) != 2:
        raise ValueError(
            f"{name} reads sequences of steps x features, these samples are {shape}; choose --data mnist-sequential"
        )
    return elman(units, *shape, outputs)


def _gpt(name: str, shape: Shape, outputs: int, layers: int, width: int) -> nn.Sequential:
    heads = next(h for h in range(max(1, width // 32), 0, -1) if width % h == 0)
    return gpt(layers, width, heads, shape[0], outputs)


Maker = Callable[..., nn.Sequential]
"""(name, shape of a sample, outputs, the numbers in the name) -> model."""
MAKERS: dict[str, Maker] = {
    "linear": _mlp(nn.ReLU),
    "mlp": _mlp(nn.ReLU),
    "tanh": _mlp(nn.Tanh),
    "residual": _residual,
    "binary": _binary(Sign),
    "staircase": _binary(functools.partial(Staircase, 4)),
    "lenet5": _lenet5,
    "resnet18": _resnet18,
    "elman": _elman,
    "gpt": _gpt,
}


def create(name: str, sample_shape: Sequence[int], outputs: int, tokens: bool = False) -> nn.Sequential:
    """A model by its name, for samples of the given shape.

    `mlp-DEPTHxWIDTH`, `tanh-DEPTHxWIDTH` (the same with tanh), `linear` (no hidden layer), `residual-DEPTHxWIDTH`,
    `lenet5`, `elman-UNITS`, `binary-WIDTH` (sign, then tanh), `staircase-WIDTH` (4 levels, then tanh),
    `resnet18-WIDTH`, and `gpt-LAYERSxWIDTH` with width // 32 heads, or the next smaller number that divides the width.
    tokens: whether samples are int64 tokens from 0 to outputs - 1, which only a gpt accepts.

    Raises ValueError for another name, and for samples of a kind or shape that the model cannot take.

    >>> create("mlp-1x300", (28,), 2)[1]
    Linear(in_features=28, out_features=300, bias=True)
    """
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
    return MAKERS[kind](name, shape, outputs, *map(int, sizes.split("x") if sizes else ()))
