"""A module that stands for a function computes what the function does, and is made only where it does."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import altmin
from altmin.calculus import CLOSED_FORMS

SAME = {
    "relu": F.relu,
    "relu in place": lambda x: F.relu(x.clone(), inplace=True),
    "leaky": lambda x: F.leaky_relu(x, 0.3),
    "leaky by name": lambda x: F.leaky_relu(x, negative_slope=0.3),
    "elu": lambda x: F.elu(x, alpha=0.7),
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "softplus": lambda x: F.softplus(x, 2.0, 5.0),
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.7),
    "max pool": lambda x: F.max_pool2d(x, 2, stride=1, padding=1),
    "max pool, all by place": lambda x: F.max_pool2d(x, 3, 2, 1, 1, True),
    "max pool in one dimension": lambda x: F.max_pool1d(x.flatten(1, 2), 3),
    "average pool": lambda x: F.avg_pool2d(x, 2, 1, 1, False, False),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (1, 2)),
    "flatten": torch.flatten,
    "flatten from 1": lambda x: torch.flatten(x, 1),
    "flatten by name": lambda x: x.flatten(start_dim=2),
    "flatten to": lambda x: x.flatten(1, 2),
    "view": lambda x: x.view(-1, 8),
    "reshape": lambda x: x.reshape((4, 2, 16)),
    "torch.reshape": lambda x: torch.reshape(x, (4, -1)),
    "view by size": lambda x: x.view(x.size(0), -1),
    "view by shape": lambda x: x.view(x.shape[0], -1),
    "reshape by size()": lambda x: x.reshape(x.size()[0], -1),
    "other sizes": lambda x: x.view(x.size(1), -1),
    "two sizes": lambda x: x.view(x.size(0), x.size(1), -1),
    **{m: (lambda x, m=m: getattr(x, m)()) for m in ("relu", "tanh", "sigmoid", "flatten")},
    **{f"torch.{m}": getattr(torch, m) for m in ("relu", "tanh", "sigmoid")},
    **{f.__name__: f for f in (F.silu, F.mish, F.selu, F.celu, F.relu6, F.softsign, F.hardswish, F.hardsigmoid)},
    **{f.__name__: f for f in (F.logsigmoid, F.tanhshrink)},
}


class Function(nn.Module):
    def __init__(self, name: str):
        super().__init__()
        self.name, self.layer = name, nn.Conv2d(1, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return SAME[self.name](self.layer(x))


@pytest.mark.parametrize("name", SAME)
def test_a_function_and_what_stands_for_it_have_the_same_values(name):
    torch.manual_seed(0)
    model, x = Function(name).double(), torch.randn(4, 1, 4, 4, dtype=torch.float64)
    chain = altmin.split(model)
    assert torch.equal(chain(x), model(x))
    assert (type(chain.blocks[0].maps[-1].module) in CLOSED_FORMS) == (name not in ("other sizes", "two sizes"))
