"""The names by which the command line knows the models."""

import functools
import math
import re
from collections.abc import Sequence

from torch import nn

from altmin.errors import unknown
from altmin.layers import Sign, Staircase
from altmin.models.convolutional import lenet5
from altmin.models.fully_connected import Activation, binary_mlp, mlp
from altmin.models.recurrent import elman
from altmin.models.residual import residual_mlp

KNOWN = [
    *("mlp-2x100", "mlp-2x500", "mlp-1x300", "mlp-8x100", "mlp-20x100", "tanh-2x500", "residual-32x32"),
    *("linear", "lenet5", "elman-15", "elman-50", "binary-500", "staircase-500"),
]
"""Examples for the error about an unknown name; widths and depths are free."""


def create(name: str, sample_shape: Sequence[int], outputs: int) -> nn.Sequential:
    """A model by its name, for samples of the given shape.

    `mlp-DEPTHxWIDTH`, `tanh-DEPTHxWIDTH` (the same with tanh), `linear` (no hidden layer), `residual-DEPTHxWIDTH`,
    `lenet5`, `elman-UNITS`, `binary-WIDTH` (sign, then tanh) and `staircase-WIDTH` (4 levels, then tanh). Raises
    ValueError for another name, and for samples of a shape that the model cannot take.

    >>> create("mlp-1x300", (28,), 2)[1]
    Linear(in_features=28, out_features=300, bias=True)
    """
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
    if found := re.fullmatch(r"elman-([1-9]\d*)", name):
        if len(sample_shape) != 2:
            raise ValueError(
                f"{name} reads sequences of steps x features, these samples are {tuple(sample_shape)}; "
                "choose --data mnist-sequential"
            )
        length, features = sample_shape
        return elman(int(found[1]), length, features, outputs)
    raise unknown("model", name, KNOWN)
