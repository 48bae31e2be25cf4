"""The paper's architectures as plain `nn.Sequential`s, and the names by which the command line knows them."""

import functools
import itertools
import math
import re
from collections.abc import Callable, Sequence

from torch import nn

from altmin.activations import Sign, Staircase
from altmin.errors import unknown

__all__ = ["binary_mlp", "create", "freeze_first", "lenet5", "mlp"]

Activation = Callable[[], nn.Module]


def mlp(inputs: int, hidden: Sequence[int], outputs: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """A fully connected net: `mlp(784, (100, 100), 10)` is the paper's 784-100-100-10."""
    widths = [inputs, *hidden]
    layers: list[nn.Module] = []
    for m, n in itertools.pairwise(widths):
        layers += [_he(nn.Linear(m, n)), activation()]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(widths[-1], outputs))


def binary_mlp(
    inputs: int = 784,
    hidden: Sequence[int] = (500, 500),
    outputs: int = 10,
    activations: Activation | Sequence[Activation] = (Sign, nn.Tanh),
    dropout: float = 0.0,
) -> nn.Sequential:
    """A fully connected net with activations that have no derivative: by default 784-500-500-10, sign and then tanh.

    activations: a class, or any function that makes a module, for each hidden layer, or one for all of them: `Sign` for
    a net of signs only. dropout: of the input of each layer but the first.
    """
    each = [activations] * len(hidden) if callable(activations) else list(activations)
    if len(each) != len(hidden):
        raise ValueError(
            f"activations has {len(each)} entries for {len(hidden)} hidden layers; give one for each, or one for all"
        )
    layers: list[nn.Module] = []
    for (m, n), activation in zip(itertools.pairwise([inputs, *hidden]), each, strict=True):
        layers += [_unit(nn.Linear(m, n)), activation(), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear([inputs, *hidden][-1], outputs))


def lenet5(outputs: int = 10, channels: int = 1) -> nn.Sequential:
    """LeNet-5 for images of 28 x 28, with rectified units and max-pooling."""
    return nn.Sequential(
        *(nn.Conv2d(channels, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU()),
        *(nn.Linear(120, 84), nn.ReLU()),
        nn.Linear(84, outputs),
    )


def create(name: str, sample_shape: Sequence[int], outputs: int) -> nn.Sequential:
    """A model by its command-line name (`mlp-2x100`, `lenet5`, `binary-500`, ...) for samples of the given shape.

    >>> create("mlp-1x300", (28,), 2)[1]
    Linear(in_features=28, out_features=300, bias=True)
    """
    inputs = math.prod(sample_shape)
    if fully_connected := re.fullmatch(r"mlp-(\d+)x(\d+)", name):
        depth, width = map(int, fully_connected.groups())
        if depth and width:
            return mlp(inputs, [width] * depth, outputs)
    if (found := re.fullmatch(r"(binary|staircase)-(\d+)", name)) and int(found[2]):
        first: Activation = Sign if found[1] == "binary" else functools.partial(Staircase, 4)
        return binary_mlp(inputs, [int(found[2])] * 2, outputs, (first, nn.Tanh))
    if name == "lenet5":
        if tuple(sample_shape[-2:]) != (28, 28) or len(sample_shape) != 3:
            raise ValueError(
                f"lenet5 reads images of channels x 28 x 28, these samples are {tuple(sample_shape)}; "
                "choose an mlp-DEPTHxWIDTH, or MNIST or Fashion-MNIST"
            )
        return lenet5(outputs, sample_shape[0])
    known = ["mlp-2x100", "mlp-2x500", "mlp-1x300", "mlp-8x100", "mlp-20x100", "lenet5", "binary-500", "staircase-500"]
    raise unknown("model", name, known)


def freeze_first(model: nn.Module) -> None:
    """Takes the first layer with parameters out of the training: the control for what training it is worth."""
    first = next(module for module in model.modules() if any(True for _ in module.parameters(recurse=False)))
    first.requires_grad_(False)


def _he(layer: nn.Linear) -> nn.Linear:
    """He initialisation: rectified layers keep the size of what passes through them, at any depth."""
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    nn.init.zeros_(layer.bias)
    return layer


def _unit(layer: nn.Linear) -> nn.Linear:
    """Outputs of unit size for inputs of unit size, as signs are: many of them within reach of a threshold."""
    nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
    nn.init.zeros_(layer.bias)
    return layer
