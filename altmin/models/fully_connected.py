"""Fully connected nets: with differentiable and with non-differentiable activations."""

import itertools
from collections.abc import Callable, Sequence

from torch import nn

from altmin.layers import Sign

Activation = Callable[[], nn.Module]


def mlp(inputs: int, hidden: Sequence[int], outputs: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Flatten, then for each width of `hidden` a linear layer and `activation()`, then a linear layer of `outputs`.

    `mlp(784, (100, 100), 10)` is the paper's 784-100-100-10. Hidden layers start with He's weights, N(0, 2 / inputs of
    the layer), and zero biases.
    """
    layers: list[nn.Module] = []
    for m, n in itertools.pairwise([inputs, *hidden]):
        layers += [_initialised(nn.Linear(m, n), "relu"), activation()]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear([inputs, *hidden][-1], outputs))


def binary_mlp(
    inputs: int = 784,
    hidden: Sequence[int] = (500, 500),
    outputs: int = 10,
    activations: Activation | Sequence[Activation] = (Sign, nn.Tanh),
    dropout: float = 0.0,
) -> nn.Sequential:
    """A fully connected net with activations that have no derivative: by default 784-500-500-10, sign and then tanh.

    activations: for each hidden layer a class, or any function that makes a module; or one for all of them: `Sign` for
    a net of signs only. dropout: the probability for the input of each layer but the first. Hidden layers start with
    weights N(0, 1 / inputs of the layer) and zero biases.

    Raises ValueError if `activations` and `hidden` differ in length.
    """
    each = [activations] * len(hidden) if callable(activations) else list(activations)
    if len(each) != len(hidden):
        raise ValueError(
            f"activations has {len(each)} entries for {len(hidden)} hidden layers; give one for each, or one for all"
        )
    layers: list[nn.Module] = []
    for (m, n), activation in zip(itertools.pairwise([inputs, *hidden]), each, strict=True):
        # Unit variance is preserved, so that many units are near a threshold.
        layers += [_initialised(nn.Linear(m, n), "linear"), activation()]
        layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear([inputs, *hidden][-1], outputs))


def _initialised(layer: nn.Linear, nonlinearity: str) -> nn.Linear:
    """Normal weights whose variance preserves the variance of activations with this nonlinearity."""
    nn.init.kaiming_normal_(layer.weight, nonlinearity=nonlinearity)  # type: ignore[arg-type]
    nn.init.zeros_(layer.bias)
    return layer
