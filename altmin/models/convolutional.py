"""LeNet-5, and a small net with discrete activations and weights of few bits."""

from collections.abc import Callable

from torch import nn

from altmin.layers import QuantisedConv2d, QuantisedLinear, Sign


def lenet5(outputs: int = 10, channels: int = 1) -> nn.Sequential:
    """LeNet-5 for images (channels, 28, 28), with ReLU and max-pooling."""
    return nn.Sequential(
        *(nn.Conv2d(channels, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU()),
        *(nn.Linear(120, 84), nn.ReLU()),
        nn.Linear(84, outputs),
    )


def binary_cnn(
    outputs: int = 10,
    channels: int = 1,
    width: int = 16,
    activation: Callable[[], nn.Module] = Sign,
    bits: int = 1,
) -> nn.Sequential:
    """A net for images (channels, 28, 28): three 3 x 3 convolutions with `width`, 2 `width` and 2 `width` channels, a
    hidden layer with 8 `width` units and a linear output. Max-pooling follows the first two; batch norm and
    `activation()` follow all but the output. All weights have `bits` bits, 1 to 4, but those of the first and the last
    layer, which are real.
    """
    w, v = width, 2 * width
    return nn.Sequential(
        *(nn.Conv2d(channels, w, 3, padding=1, bias=False), nn.MaxPool2d(2), nn.BatchNorm2d(w), activation()),
        *(QuantisedConv2d(w, v, 3, padding=1, bias=False, bits=bits), nn.MaxPool2d(2), nn.BatchNorm2d(v), activation()),
        *(QuantisedConv2d(v, v, 3, padding=1, bias=False, bits=bits), nn.BatchNorm2d(v), activation()),
        *(nn.Flatten(), QuantisedLinear(49 * v, 8 * w, bias=False, bits=bits), nn.BatchNorm1d(8 * w), activation()),
        nn.Linear(8 * w, outputs),
    )
