"""The online methods are the compositions that their names stand for; the paper's AM-mem is its Algorithms 1 to 3."""

import pytest
import torch
from torch import nn

import altmin


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return altmin.models.mlp(4, (5, 6), 3, nn.Tanh).double()


COMPOSITIONS = {
    "am-adam": (
        {"lr": 0.02, "weight_decay": 0.1, "l1": 0.01, "penalty": 2.0},
        lambda: {"weights": altmin.LocalAdam(0.02, weight_decay=0.1, l1=0.01), "penalty": 2.0},
    ),
    "am-sgd": (
        {"lr": 0.05, "momentum": 0.7, "weight_decay": 0.1, "l1": 0.01},
        lambda: {"weights": altmin.LocalSGD(0.05, momentum=0.7, weight_decay=0.1, l1=0.01)},
    ),
    "am-mem": (
        {"lr": 0.02, "length": "adam", "beta": 0.8, "forget": 0.7, "damping": 0.3}
        | {"rank": 4, "weight_decay": 0.1, "decay_biases": False, "penalty": 2.0},
        lambda: {
            "weights": altmin.CoActivationMemory(
                0.02, 0.8, 0.7, 0.3, length="adam", rank=4, weight_decay=0.1, decay_biases=False
            ),
            "penalty": 2.0,
        },
    ),
    "am-mem-fitted": (
        {"lr": 0.01, "forget": 0.8, "damping": 3.0, "rate": 50.0},
        lambda: {"weights": altmin.FittedMemory(0.8, 3.0, None, 50.0, altmin.LocalAdam(0.01))},
    ),
}


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_a_method_is_the_composition_of_its_parts(name: str) -> None:
    options, parts = COMPOSITIONS[name]
    named, composed = altmin.methods.create(name, net(), **options), altmin.AltMin(net(), **parts())
    for _ in range(3):
        x, y = torch.randn(7, 4, dtype=torch.float64), torch.randint(3, (7,))
        assert torch.equal(named.step(x, y).loss, composed.step(x, y).loss)
    named.end_epoch()
    composed.end_epoch()
    torch.testing.assert_close([*named.model.parameters()], [*composed.model.parameters()], rtol=0, atol=0)
