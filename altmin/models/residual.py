"""A residual net of any depth, the one on which predictive coding is measured."""

from torch import nn

from altmin.common.errors import demand
from altmin.layers import Residual


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
