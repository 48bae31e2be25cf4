"""ResNet-18 computes its formula, has as many parameters as its formula says, and a code for every residual block."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import altmin
from altmin.models import resnet18


def normed(x: Tensor, state: dict[str, Tensor], name: str) -> Tensor:
    """Batch norm by the batch's own statistics."""
    mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True, correction=0)
    weight, bias = (state[f"{name}.{part}"].view(1, -1, 1, 1) for part in ("weight", "bias"))
    return (x - mean) / (var + 1e-5).sqrt() * weight + bias


def by_hand(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """The net in training, from its parameters alone: eight blocks, numbers 3 to 10 of the Sequential."""
    h = F.relu(normed(F.conv2d(x, state["0.weight"], padding=1), state, "1"))
    for i in range(8):
        at, stride = str(3 + i), 2 if i in (2, 4, 6) else 1
        inner = F.relu(normed(F.conv2d(h, state[f"{at}.conv1.weight"], stride=stride, padding=1), state, f"{at}.bn1"))
        branch = normed(F.conv2d(inner, state[f"{at}.conv2.weight"], padding=1), state, f"{at}.bn2")
        if stride == 2:
            h = normed(F.conv2d(h, state[f"{at}.shortcut.0.weight"], stride=2), state, f"{at}.shortcut.1")
        h = F.relu(h + branch)
    return h.mean((2, 3)) @ state["13.weight"].T + state["13.bias"]


def test_it_is_its_formula() -> None:
    torch.manual_seed(0)
    model, x = resnet18(2, classes=5, channels=1).double(), torch.randn(3, 1, 16, 12, dtype=torch.float64)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 2.0)
            nn.init.normal_(module.bias)
    torch.testing.assert_close(model(x), by_hand(dict(model.named_parameters()), x))


@pytest.mark.parametrize("width, classes, channels", [(3, 10, 3), (8, 4, 1)])
def test_it_has_as_many_parameters_as_its_formula(width: int, classes: int, channels: int) -> None:
    """Two numbers of batch norm for each output of a convolution; none of these has a bias."""
    total = 9 * channels * width + 2 * width
    for k in range(4):
        outputs = width * 2**k
        inputs = outputs // 2 if k else width
        total += 9 * inputs * outputs + 3 * 9 * outputs**2 + 4 * 2 * outputs
        total += inputs * outputs + 2 * outputs if k else 0
    total += 8 * width * classes + classes
    assert sum(p.numel() for p in resnet18(width, classes, channels).parameters()) == total


def test_convolutions_start_with_a_variance_of_two_over_outputs_times_window() -> None:
    torch.manual_seed(0)
    model = resnet18(32)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            window = module.kernel_size[0] ** 2
            # three standard errors of the variance of n normal numbers
            slack = 3 * (2 / module.weight.numel()) ** 0.5
            assert module.weight.var().item() == pytest.approx(2 / (window * module.out_channels), rel=slack)


def test_every_residual_block_has_a_code() -> None:
    blocks = [str(block) for block in altmin.split(resnet18(2))]
    assert blocks == [
        *("Conv2d, BatchNorm2d", "ReLU, BasicBlock"),
        *["BasicBlock"] * 7,
        "AdaptiveAvgPool2d, Flatten, Linear",
    ]


def test_alternating_minimization_trains_it() -> None:
    """Which half of an image is brighter."""
    torch.manual_seed(0)
    x, y = torch.randn(64, 1, 8, 8), torch.arange(64) % 2
    x[:, :, :, :4] += torch.where(y == 0, 0.5, -0.5).view(-1, 1, 1, 1)
    model = resnet18(4, classes=2, channels=1)
    am = altmin.AltMin(model, weights=altmin.LocalAdam(lr=0.003))
    for _ in range(15):
        am.step(x, y)
    assert (model.eval()(x).argmax(1) == y).double().mean() > 0.95
    assert model[3].bn1.num_batches_tracked == 15, "one set of statistics for each step"


@pytest.mark.parametrize("option", ["width", "classes", "channels"])
def test_a_size_that_is_none_is_refused_by_name(option: str) -> None:
    for wrong in (0, 2.5, -1):
        with pytest.raises(ValueError, match=f"{option} of resnet18"):
            resnet18(**{"width": 3, option: wrong})
