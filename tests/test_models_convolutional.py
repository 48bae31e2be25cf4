"""LeNet-5 is the published architecture."""

import torch
from torch.nn import functional as F

from altmin.models import lenet5


def test_lenet5_is_its_formula() -> None:
    torch.manual_seed(0)
    model, x = lenet5(outputs=7, channels=3), torch.randn(2, 3, 28, 28)
    p = list(model.parameters())
    h = F.max_pool2d(torch.relu(F.conv2d(x, p[0], p[1], padding=2)), 2)
    h = F.max_pool2d(torch.relu(F.conv2d(h, p[2], p[3])), 2).flatten(1)
    h = torch.relu(F.linear(torch.relu(F.linear(h, p[4], p[5])), p[6], p[7]))
    torch.testing.assert_close(model(x), F.linear(h, p[8], p[9]))


def test_lenet5_has_61706_parameters() -> None:
    """6 and 16 kernels of 5 x 5, then 400-120-84-10, with biases."""
    counted = 6 * (25 + 1) + 16 * (6 * 25 + 1) + 120 * 401 + 84 * 121 + 10 * 85
    assert sum(p.numel() for p in lenet5().parameters()) == counted == 61_706
