"""Methods by name are the compositions that they stand for; the offline ones gather over an epoch and move the weights
once, at its end."""

import pytest
import torch
from torch import nn

import altmin

RULES = {
    "am-adam-offline": lambda: altmin.LocalAdam(0.01),
    "am-mem-offline": lambda: altmin.CoActivationMemory(0.03, beta=0.5, forget=0.0),
    "am-mem-fitted-offline": lambda: altmin.FittedMemory(0.0, 1.0, None, 100.0, altmin.LocalAdam(0.01), steps=None),
}
PENALTY = {"start": 2.0, "increment": 0.5, "growth": 3.0, "maximum": 100.0}


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return altmin.models.mlp(4, (5, 6), 3, nn.Tanh).double()


def parts() -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(2)
    return [(torch.randn(n, 4, dtype=torch.float64), torch.randint(3, (n,))) for n in (7, 7, 3)]


@pytest.mark.parametrize("at", [None, ["1"]])
@pytest.mark.parametrize("name", RULES)
def test_an_epoch_is_one_gathering_and_one_update_of_its_rule(name: str, at: list[str] | None) -> None:
    """Also of a model that is cut after its second module, a Tanh, and nowhere else: two blocks, and one code."""
    offline = altmin.methods.create(name, net(), penalty=altmin.Penalty(**PENALTY), at=at)
    am = altmin.AltMin(net(), weights=RULES[name](), penalty=altmin.Penalty(**PENALTY), at=at)
    assert len(offline.method.chain) == (2 if at else 3)
    for _ in range(2):
        for x, y in parts():
            assert torch.equal(offline.step(x, y).loss, am.gather(x, y).loss)
        offline.end_epoch()
        am.apply()
        am.end_epoch()
    torch.testing.assert_close([*offline.model.parameters()], [*am.model.parameters()], rtol=0, atol=0)


@pytest.mark.parametrize("lr, left", [(0.03, 0.9999), (0.3, 0.2)])
def test_am_mem_offline_learns_targets_of_ten_thousand_without_a_rise_of_the_loss(lr: float, left: float) -> None:
    torch.manual_seed(0)
    x = torch.randn(200, 5)
    y = 1e4 * (x[:, :1].sin() + x[:, 1:2] * x[:, 2:3])
    method = altmin.methods.create("am-mem-offline", altmin.models.mlp(5, (16, 16), 1), loss=nn.MSELoss(), lr=lr)
    losses = [row["train_loss"] for row in altmin.fit(method, (x, y), epochs=60, batch_size=100).epochs]
    assert max(losses) < 1.001 * losses[0]
    assert losses[-1] < left * losses[0]


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
        {"lr": 0.02, "beta": 0.8, "forget": 0.7, "damping": 0.3}
        | {"rank": 4, "weight_decay": 0.1, "decay_biases": False, "penalty": 2.0},
        lambda: {
            "weights": altmin.CoActivationMemory(0.02, 0.8, 0.7, 0.3, rank=4, weight_decay=0.1, decay_biases=False),
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
