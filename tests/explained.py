"""What the tests of `altmin.explain` share: nets that a careless copy would disturb, and rows to change a number of."""

import torch
from torch import Tensor, nn

import altmin
from altmin.explaining.rows import Facts, Milliseconds, Row


def batch(samples: int = 24, features: int = 5, classes: int = 3) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(samples, features), torch.arange(samples) % classes


def net(seed: int = 0) -> nn.Sequential:
    """5 features, two hidden layers, 3 classes."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))


def noisy_net() -> nn.Sequential:
    """With batch norm and dropout, which keep statistics and draw random numbers."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def row(block: int = 0, **changes: object) -> Row:
    """A block of which nothing is to be said."""
    usual: dict[str, object] = {
        "modules": "Linear",
        "names": ("0.weight",),
        "parameters": 100,
        "output": (10,),
        "through_autograd": (),
        "avoidable": (),
        "frozen": False,
        "time": Milliseconds(1.0, 1.0, 1.0),
        "movement": 0.01,
        "length": 0.1,
        "residual": 0.01,
        "dead": 0.0,
        "taken": 0.1,
        "gradient": 1.0,
        "backprop": 1.0,
        "cosine": 0.99,
        "change": 0.01,
    }
    return Row(block=block, **{**usual, **changes})  # type: ignore[arg-type]


def facts(**changes: object) -> Facts:
    """A step of which nothing is to be said."""
    usual: dict[str, object] = {
        "method": "am-adam",
        "samples": 24,
        "loss": 1.1,
        "classes": 3,
        "input_mean": 0.0,
        "input_std": 1.0,
        "widest": 1.0,
        "target_std": None,
        "share": 0.1,
        "step": None,
        "order": "codes-first",
        "truncated": False,
        "estimated": False,
        "idle": (),
        "rounding": 1e-7,
        "smallest_group": None,
        "update": 1.0,
    }
    return Facts(**{**usual, **changes})  # type: ignore[arg-type]


def explained(model: nn.Module, **options: object) -> altmin.Explanation:
    return altmin.explain(model, *batch(), **options)  # type: ignore[arg-type]
