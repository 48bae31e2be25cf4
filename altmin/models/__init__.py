"""The paper's architectures as plain `nn.Sequential`s, and the names by which the command line knows them."""

import itertools
import re
from collections.abc import Sequence

from torch import nn

from altmin.errors import unknown

__all__ = ["create", "lenet5", "mlp"]


def mlp(inputs: int, hidden: Sequence[int], outputs: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """A fully connected net: `mlp(784, (100, 100), 10)` is the paper's 784-100-100-10."""
    widths = [inputs, *hidden]
    layers: list[nn.Module] = []
    for m, n in itertools.pairwise(widths):
        layers += [_he(nn.Linear(m, n)), activation()]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(widths[-1], outputs))


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
    """A model by its command-line name (`mlp-2x100`, `mlp-1x300`, `lenet5`) for samples of the given shape.

    >>> create("mlp-1x300", (28,), 2)[1]
    Linear(in_features=28, out_features=300, bias=True)
    """
    if fully_connected := re.fullmatch(r"mlp-(\d+)x(\d+)", name):
        depth, width = map(int, fully_connected.groups())
        if depth and width:
            inputs = 1
            for n in sample_shape:
                inputs *= n
            return mlp(inputs, [width] * depth, outputs)
    if name == "lenet5":
        if tuple(sample_shape[-2:]) != (28, 28) or len(sample_shape) != 3:
            raise ValueError(
                f"lenet5 reads images of channels x 28 x 28, these samples are {tuple(sample_shape)}; "
                "choose an mlp-DEPTHxWIDTH, or MNIST or Fashion-MNIST"
            )
        return lenet5(outputs, sample_shape[0])
    raise unknown("model", name, ["mlp-2x100", "mlp-2x500", "mlp-1x300", "mlp-8x100", "mlp-20x100", "lenet5"])


def _he(layer: nn.Linear) -> nn.Linear:
    """He initialisation: rectified layers keep the size of what passes through them, at any depth."""
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    nn.init.zeros_(layer.bias)
    return layer
