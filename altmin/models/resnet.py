"""ResNet-18 for small images."""

import itertools

import torch.nn.functional as F
from torch import Tensor, nn

from altmin.common.errors import demand


class BasicBlock(nn.Module):
    """relu(x' + B(relu(A(x)))): A and B are 3 x 3 convolutions with batch norm, A with a stride.

    x' is x, or where shapes differ a 1 x 1 convolution of it with batch norm.
    """

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        branch = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(self.shortcut(x) + branch)


def resnet18(width: int, classes: int = 10, channels: int = 3) -> nn.Sequential:
    """ResNet-18 as it is used on CIFAR-10, for images (channels, height, width) of 8 x 8 or more.

    A 3 x 3 convolution to `width` channels with batch norm, without pooling; four stages of two `BasicBlock`s with 1,
    2, 4 and 8 times `width` channels, each stage but the first at half the resolution; the mean over all places; a
    linear layer. Every block is one module of the chain. Convolutions start with weights
    N(0, 2 / (k k outputs)) for k x k windows.

    Raises ValueError unless all are whole numbers above 0.
    """
    for name, value in (("width", width), ("classes", classes), ("channels", channels)):
        demand("resnet18", name, value, low=1, whole=True)
    widths = [width, *(k * width for k in (1, 2, 4, 8))]
    blocks = []
    for inputs, outputs in itertools.pairwise(widths):
        blocks += [BasicBlock(inputs, outputs, 1 if outputs == width else 2), BasicBlock(outputs, outputs, 1)]
    model = nn.Sequential(
        *(nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
        *blocks,
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, classes)),
    )
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model
