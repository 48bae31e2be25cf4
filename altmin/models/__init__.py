"""The paper's architectures as plain `nn.Sequential`s, and the names by which the command line knows them."""

import functools
import itertools
import math
import re
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from altmin.calculus import Readout, Recurrent
from altmin.errors import unknown
from altmin.layers import Sign, Staircase

__all__ = ["binary_mlp", "create", "elman", "freeze_first", "lenet5", "mlp", "pad"]

Activation = Callable[[], nn.Module]
KNOWN = [
    *("mlp-2x100", "mlp-2x500", "mlp-1x300", "mlp-8x100", "mlp-20x100"),
    *("lenet5", "elman-15", "elman-50", "binary-500", "staircase-500"),
]
"""Model names to offer where another was given; widths and depths are free."""


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


def elman(hidden: int, length: int = 784, inputs: int = 1, outputs: int = 10, padded: bool = False) -> nn.Sequential:
    """The paper's Elman network for sequences (samples, length, inputs): tanh units in time, z_t = V h_t a scalar, and
    a classifier over the rectified z_1..z_T.

    padded: sequences of several lengths, brought to a common one by `pad`.
    """
    return nn.Sequential(
        Recurrent(inputs, hidden, padded),
        *(Readout(hidden, 1, bias=False), nn.Flatten(), nn.ReLU()),
        nn.Linear(length, outputs),
    )


def pad(sequences: Sequence[Tensor], length: int) -> Tensor:
    """Sequences (steps, inputs) of any lengths as one tensor (samples, length, inputs + 1) for a padded `elman`: zeros
    at the end, and a last feature that is 1 at every real step.

    >>> pad([torch.tensor([[5.0], [6.0]]), torch.tensor([[7.0]])], length=2).tolist()
    [[[5.0, 1.0], [6.0, 1.0]], [[7.0, 1.0], [0.0, 0.0]]]
    """
    longest = max((len(s) for s in sequences), default=0)
    if longest > length or not longest:
        raise ValueError(f"sequences of up to {length} steps are wanted, the longest given has {longest}")
    if any(s.ndim != 2 or s.shape[1] != sequences[0].shape[1] for s in sequences):
        shapes = ", ".join(sorted({str(tuple(s.shape)) for s in sequences})[:3])
        raise ValueError(f"each sequence is (steps, inputs) with the same number of inputs, given {shapes}")
    return torch.stack([F.pad(F.pad(s, (0, 1), value=1.0), (0, 0, 0, length - len(s))) for s in sequences])


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
    if recurrent := re.fullmatch(r"elman-([1-9]\d*)", name):
        if len(sample_shape) != 2:
            raise ValueError(
                f"{name} reads sequences of steps x features, these samples are {tuple(sample_shape)}; "
                "choose --data mnist-sequential"
            )
        length, inputs = sample_shape
        return elman(int(recurrent[1]), length, inputs, outputs)
    raise unknown("model", name, KNOWN)


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
