"""Weight decay on weight matrices only: biases and normalisation move as without any."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import altmin
from altmin.core.weights.decay import groups, undecayed

RATE, DECAY = 0.05, 0.3


def net() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 3)).double()
    for p in model.parameters():
        nn.init.normal_(p, std=0.5)  # or decay of a bias of zero would show nothing
    return model


def batch(seed: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return x, torch.arange(12) % 3


def by_hand(optimizer: Any) -> nn.Sequential:
    """Backprop with weight decay on the matrices alone."""
    model = net()
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    chosen = optimizer([{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}], lr=RATE)
    for seed in range(4):
        chosen.zero_grad()
        nn.functional.cross_entropy(model(batch(seed)[0]), batch(seed)[1]).backward()
        chosen.step()
    return model


def sgd(params: Any, lr: float) -> Any:
    return torch.optim.SGD(params, lr, momentum=0.9)


@pytest.mark.parametrize(
    "name, optimizer", [("adam", torch.optim.Adam), ("sgd", sgd), ("am-adam", torch.optim.Adam), ("am-sgd", sgd)]
)
def test_a_method_decays_matrices_and_nothing_else(name: str, optimizer: Any) -> None:
    """With share 0 the gradients of AM are those of backprop."""
    more = {"share": 0.0} if name.startswith("am") else {}
    model = net()
    method = altmin.methods.create(name, model, lr=RATE, weight_decay=DECAY, decay_biases=False, **more)
    for seed in range(4):
        method.step(*batch(seed))
    torch.testing.assert_close([*model.parameters()], [*by_hand(optimizer).parameters()], rtol=1e-9, atol=1e-11)


def test_decoupled_decay_of_a_local_rule_spares_biases_too() -> None:
    options = {"weight_decay": DECAY, "decoupled_weight_decay": True}
    first, second = (
        altmin.AltMin(net(), weights=altmin.LocalAdam(RATE, **options, decay_biases=each)) for each in (False, True)
    )
    for am in (first, second):
        am.step(*batch(0))
    for p, q in zip(first.model.parameters(), second.model.parameters(), strict=True):
        if p.ndim > 1:
            torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-13)
        else:
            assert not torch.allclose(p, q)


@pytest.mark.parametrize("name", ["adam", "am-adam"])
def test_members_of_an_ensemble_decay_as_they_would_alone(name: str) -> None:
    def made() -> list[Any]:
        options = {"lr": RATE, "weight_decay": DECAY, "decay_biases": False}
        return [altmin.methods.create(name, net(), **options) for _ in range(2)]

    ensemble, alone = altmin.Ensemble(made()), made()[0]
    for seed in range(3):
        ensemble.step(*batch(seed))
        alone.step(*batch(seed))
    torch.testing.assert_close([*ensemble.member(1).parameters()], [*alone.model.parameters()], rtol=1e-9, atol=1e-11)


def test_a_state_goes_on_in_a_method_with_the_same_groups_only() -> None:
    options = {"lr": RATE, "weight_decay": DECAY}
    spared, plain = (altmin.methods.create("adam", net(), **options, decay_biases=each) for each in (False, True))
    spared.step(*batch(0))
    again = altmin.methods.create("adam", copy.deepcopy(spared.model), **options, decay_biases=False)
    again.load_state_dict(spared.state_dict())
    for method in (spared, again):
        method.step(*batch(1))
    assert all(map(torch.equal, spared.model.parameters(), again.model.parameters()))
    with pytest.raises(ValueError):
        plain.load_state_dict(spared.state_dict())


def test_what_is_no_weight_matrix() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias_k, self.table = nn.Parameter(torch.zeros(1, 1, 4)), nn.Parameter(torch.zeros(3, 4))

    model = nn.Sequential(
        nn.Embedding(3, 4), nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.LayerNorm((2, 3)), nn.PReLU(), Own(), nn.RNN(2, 2)
    )
    spared = undecayed(model)
    kept = [name for name, p in model.named_parameters() if id(p) not in spared]
    assert kept == ["0.weight", "1.weight", "5.table", "6.weight_ih_l0", "6.weight_hh_l0"]
    matrices = [p for p in model.parameters() if id(p) not in spared]
    first, second = groups(model.parameters(), spared)
    assert [id(p) for p in first["params"]] == [id(p) for p in matrices]
    assert second["weight_decay"] == 0.0
    assert len(groups(matrices, spared)) == 1, "no group without parameters"
