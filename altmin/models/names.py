"""The names by which the command line knows the models."""

import functools
import math
import re
from collections.abc import Sequence

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


def create(name: str, sample_shape: Sequence[int], outputs: int, tokens: bool = False) -> nn.Sequential:
    """A model by its name, for samples of the given shape.

    `mlp-DEPTHxWIDTH`, `tanh-DEPTHxWIDTH` (the same with tanh), `linear` (no hidden layer), `residual-DEPTHxWIDTH`,
    `lenet5`, `elman-UNITS`, `binary-WIDTH` (sign, then tanh), `staircase-WIDTH` (4 levels, then tanh),
    `resnet18-WIDTH`, and `gpt-LAYERSxWIDTH` with width // 32 heads, or the next smaller number that divides the width.
    tokens: whether samples are tokens, int64 from 0 to outputs - 1, which a gpt reads, and no other model.

    Raises ValueError for another name, and for samples of a kind or shape that the model cannot take.

    >>> create("mlp-1x300", (28,), 2)[1]
    Linear(in_features=28, out_features=300, bias=True)
    """
    if not FORMS.fullmatch(name):
        raise unknown("model", name, KNOWN)
    if found := re.fullmatch(r"gpt-([1-9]\d*)x([1-9]\d*)", name):
        if not tokens or len(sample_shape) != 1:
            raise ValueError(
                f"{name} reads sequences of tokens, these samples are {tuple(sample_shape)} numbers; "
                "choose --data shakespeare"
            )
        layers, width = int(found[1]), int(found[2])
        heads = next(h for h in range(max(1, width // 32), 0, -1) if width % h == 0)
        return gpt(layers, width, heads, sample_shape[0], outputs)
    if tokens:
        raise ValueError(f"{name} reads numbers, these samples are sequences of tokens; choose a gpt-LAYERSxWIDTH")
    inputs = math.prod(sample_shape)
    if found := re.fullmatch(r"(mlp|tanh)-([1-9]\d*)x([1-9]\d*)", name):
        activation = nn.ReLU if found[1] == "mlp" else nn.Tanh
        return mlp(inputs, [int(found[3])] * int(found[2]), outputs, activation)
    if name == "linear":
        return mlp(inputs, (), outputs)
    if found := re.fullmatch(r"residual-([1-9]\d*)x([1-9]\d*)", name):
        return residual_mlp(int(found[2]), int(found[1]), inputs, outputs)
    if found := re.fullmatch(r"(binary|staircase)-([1-9]\d*)", name):
        first: Activation = Sign if found[1] == "binary" else functools.partial(Staircase, 4)
        return binary_mlp(inputs, [int(found[2])] * 2, outputs, (first, nn.Tanh))
    if name == "lenet5":
        if len(sample_shape) != 3 or tuple(sample_shape[1:]) != (28, 28):
            raise ValueError(
                f"lenet5 reads images of channels x 28 x 28, these samples are {tuple(sample_shape)}; "
                "choose an mlp-DEPTHxWIDTH, or MNIST or Fashion-MNIST"
            )
        return lenet5(outputs, sample_shape[0])
    if found := re.fullmatch(r"resnet18-([1-9]\d*)", name):
        if len(sample_shape) != 3 or min(sample_shape[1:]) < 8:
            raise ValueError(
                f"{name} reads images of channels x height x width, 8 x 8 or more, these samples are "
                f"{tuple(sample_shape)}; choose --data cifar10"
            )
        return resnet18(int(found[1]), outputs, sample_shape[0])
    if len(sample_shape) != 2:
        raise ValueError(
            f"{name} reads sequences of steps x features, these samples are {tuple(sample_shape)}; "
            "choose --data mnist-sequential"
        )
    length, features = sample_shape
    return elman(int(name.removeprefix("elman-")), length, features, outputs)
