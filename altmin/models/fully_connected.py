"""Fully connected nets: with differentiable and with non-differentiable activations, and residual ones."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from altmin.common.errors import demand
from altmin.layers import QuantisedLinear, Residual, Sign

Activation = Callable[[], nn.Module]


def mlp(inputs: int, hidden: Sequence[int], outputs: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Flatten, then for each width of `hidden` a linear layer and `activation()`, then a linear layer of `outputs`.

    `mlp(784, (100, 100), 10)` is the paper's 784-100-100-10. Hidden layers start with He's weights, N(0, 2 / inputs of
    the layer), and zero biases.
    """
    return _net([inputs, *hidden], outputs, [activation] * len(hidden), "relu")


def binary_mlp(
    inputs: int = 784,
    hidden: Sequence[int] = (500, 500),
    outputs: int = 10,
    activations: Activation | Sequence[Activation] = (Sign, nn.Tanh),
    dropout: float = 0.0,
    *,
    batch_norm: bool = False,
    bits: int | None = None,
) -> nn.Sequential:
    """A fully connected net with activations that have no derivative: by default 784-500-500-10, sign and then tanh.

    activations: for each hidden layer a class, or any function that makes a module; or one for all of them: `Sign` for
    a net of signs only. dropout: the probability for the input of each layer but the first. Hidden layers start with
    weights N(0, 1 / inputs of the layer) and zero biases. batch_norm: whether it precedes each activation. bits: of the
    weights of all layers between the first and the last, 1 to 4 (`QuantisedLinear`); None for real weights.

    Raises ValueError if `activations` and `hidden` differ in length.
    """
    kinds = [activations] * len(hidden) if callable(activations) else list(activations)
    if len(kinds) != len(hidden):
        raise ValueError(
            f"activations has {len(kinds)} entries for {len(hidden)} hidden layers; give one for each, or one for all"
        )
    net = _net([inputs, *hidden], outputs, kinds, "linear", dropout)
    layers: list[nn.Module] = []
    for i, m in enumerate(net):
        few = bits is not None and isinstance(m, nn.Linear) and 1 < i < len(net) - 1
        layers.append(_few_bits(m, bits) if few else m)
        if batch_norm and isinstance(m, nn.Linear) and i < len(net) - 1:
            layers.append(nn.BatchNorm1d(m.out_features))
    return nn.Sequential(*layers)


def _few_bits(linear: Any, bits: Any) -> QuantisedLinear:
    """A layer with the same parameters."""
    layer = QuantisedLinear(linear.in_features, linear.out_features, bits=bits)
    layer.weight, layer.bias = linear.weight, linear.bias
    return layer


def autoencoder(
    widths: Sequence[int] = (784, 1000, 500, 250, 30), activation: type[nn.Module] = nn.Tanh
) -> nn.Sequential:
    """Flatten, then linear layers of these widths and back again, with `activation()` between them: by default
    784-1000-500-250-30-250-500-1000-784, the net of Hinton and Salakhutdinov (2006) on which K-FAC and its relatives
    are compared. Weights start as Xavier's normal ones, biases at zero. The outputs are logits of the inputs."""
    layers: list[nn.Module] = [nn.Flatten()]
    for m, n in itertools.pairwise([*widths, *reversed(widths[:-1])]):
        linear = nn.Linear(m, n)
        nn.init.xavier_normal_(linear.weight)
        nn.init.zeros_(linear.bias)
        layers += [linear, activation()]
    return nn.Sequential(*layers[:-1])


def _net(
    widths: Sequence[int], outputs: int, activations: Sequence[Activation], nonlinearity: Any, dropout: float = 0.0
) -> nn.Sequential:
    """Flatten and linear layers; hidden weights are normal, with the variance that preserves that of activations with
    this nonlinearity. For "linear" unit variance is preserved, so that many units are near a threshold."""
    layers: list[nn.Module] = [nn.Flatten()]
    for (m, n), activation in zip(itertools.pairwise(widths), activations, strict=True):
        linear = nn.Linear(m, n)
        nn.init.kaiming_normal_(linear.weight, nonlinearity=nonlinearity)
        nn.init.zeros_(linear.bias)
        layers += [linear, activation(), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


def residual_mlp(width: int, depth: int, inputs: int = 784, outputs: int = 10) -> nn.Sequential:
    """Flatten, a linear layer to `width` units, `depth` blocks x + W relu(x) / sqrt(depth), and a linear layer.

    The parametrisation of Innocenti et al. (2025), "muPC: Scaling Predictive Coding to 100+ Layer Networks", with its
    factors in the initial weights: N(0, 1 / inputs of the layer), and N(0, 1 / width^2) in the last layer. At
    initialisation neither activations nor gradients depend on depth, and the outputs are small. As there, no layer has
    a bias. Raises ValueError unless all are whole numbers above 0.
    """
    for name, value in (("width", width), ("depth", depth), ("inputs", inputs), ("outputs", outputs)):
        demand("residual_mlp", name, value, low=1, whole=True)
    first, last = nn.Linear(inputs, width, bias=False), nn.Linear(width, outputs, bias=False)
    nn.init.normal_(first.weight, std=inputs**-0.5)
    nn.init.normal_(last.weight, std=1 / width)
    return nn.Sequential(nn.Flatten(), first, *(Residual(width, depth**-0.5) for _ in range(depth)), last)
