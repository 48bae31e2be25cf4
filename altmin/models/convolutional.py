"""LeNet-5."""

from torch import nn


def lenet5(outputs: int = 10, channels: int = 1) -> nn.Sequential:
    """LeNet-5 for images (channels, 28, 28), with ReLU and max-pooling."""
    return nn.Sequential(
        *(nn.Conv2d(channels, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU()),
        *(nn.Linear(120, 84), nn.ReLU()),
        nn.Linear(84, outputs),
    )
