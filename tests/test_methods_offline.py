"""The offline methods gather over an epoch and move the weights once, at its end."""

import pytest
import torch
from torch import nn

import altmin

RULES = {
    "am-adam-offline": lambda: altmin.LocalAdam(0.01),
    "am-mem-offline": lambda: altmin.CoActivationMemory(0.0, 1.0, None, 100.0, altmin.LocalAdam(0.01), steps=None),
}
PENALTY = {"start": 2.0, "increment": 0.5, "growth": 3.0, "maximum": 100.0}


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return altmin.models.mlp(4, (5, 6), 3, nn.Tanh).double()


def parts() -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(2)
    return [(torch.randn(n, 4, dtype=torch.float64), torch.randint(3, (n,))) for n in (7, 7, 3)]


@pytest.mark.parametrize("name", RULES)
def test_an_epoch_is_one_gathering_and_one_update_of_its_rule(name: str) -> None:
    offline = altmin.methods.create(name, net(), penalty=altmin.Penalty(**PENALTY))
    am = altmin.AltMin(net(), weights=RULES[name](), penalty=altmin.Penalty(**PENALTY))
    for _ in range(2):
        for x, y in parts():
            assert torch.equal(offline.step(x, y).loss, am.gather(x, y).loss)
        offline.end_epoch()
        am.apply()
        am.end_epoch()
    for a, b in zip(offline.model.parameters(), am.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", RULES)
def test_weights_and_mu_stay_until_the_end_of_the_epoch(name: str) -> None:
    offline = altmin.methods.create(name, net(), penalty=altmin.Penalty(**PENALTY))
    seen = [offline.step(x, y).penalty for x, y in parts()]
    assert seen == [2.0, 2.0, 2.0]
    assert all(torch.equal(a, b) for a, b in zip(offline.model.parameters(), net().parameters(), strict=True))
    offline.end_epoch()
    assert offline.am.penalty.value == (2.0 + 0.5) * 3.0, "one mini-batch, one epoch"
    assert not any(torch.equal(a, b) for a, b in zip(offline.model.parameters(), net().parameters(), strict=True))
