"""Backprop is the loop that people write with torch, its optimizer fused if wanted."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from altmin import Ensemble, methods


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_fused_reaches_the_optimizer_and_trains_alike(name: str) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(6, 5), torch.tensor([0, 1, 2, 0, 1, 2])
    plain, fused = (methods.create(name, _net(), **options) for options in ({}, {"fused": True}))
    assert plain.optimizer.defaults["fused"] is None
    assert fused.optimizer.defaults["fused"] is True
    assert not fused.optimizer.defaults.get("capturable"), "that is for weights on a GPU"
    for _ in range(3):
        plain.step(x, y)
        fused.step(x, y)
    torch.testing.assert_close([*plain.model.parameters()], [*fused.model.parameters()])


@pytest.mark.cuda
def test_fused_adam_on_a_gpu_can_be_recorded() -> None:
    assert methods.create("adam", _net().cuda(), fused=True).optimizer.defaults["capturable"] is True


def _net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))


@pytest.mark.parametrize(
    "name, options, make",
    [
        ("adam", {"lr": 0.01, "weight_decay": 0.1}, lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1)),
        ("adam", {}, lambda p: torch.optim.Adam(p, 0.001)),
        ("adamw", {"lr": 0.01, "weight_decay": 0.1}, lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1)),
        ("adamw", {}, lambda p: torch.optim.AdamW(p, 0.001)),
        ("sgd", {"lr": 0.2, "momentum": 0.5, "weight_decay": 0.1}, lambda p: torch.optim.SGD(p, 0.2, 0.5, 0, 0.1)),
        ("sgd", {}, lambda p: torch.optim.SGD(p, 0.1, 0.9)),
    ],
)
@pytest.mark.parametrize("loss", [None, nn.MSELoss()])
def test_a_step_is_the_loop_that_people_write(name, options, make, loss) -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 5)
    y = torch.tensor([0, 1, 2, 0, 1, 2]) if loss is None else torch.randn(6, 3)
    model, method = _net(), methods.create(name, _net(), loss=loss, **options)
    optimizer = make(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        before = (loss or nn.CrossEntropyLoss())(model(x), y)
        before.backward()
        optimizer.step()
        metrics = method.step(x, y)
        assert torch.equal(metrics.loss, before.detach()), "the loss before the update"
        assert not metrics.loss.requires_grad
        method.end_epoch()
    torch.testing.assert_close([*model.parameters()], [*method.model.parameters()], rtol=0, atol=0)


def test_a_sequence_of_labels_is_taken_as_so_many_samples() -> None:
    """A net that looks at each place alone learns from (samples, time, features) what it learns from rows."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))
    x, y = torch.randn(2, 6, 3), torch.randint(4, (2, 6))
    losses = (None, nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=2))
    for loss in losses:
        ours, theirs = (methods.create("sgd", copy.deepcopy(model), loss=loss) for _ in range(2))
        torch.testing.assert_close(ours.step(x, y).loss, theirs.step(x.flatten(0, 1), y.flatten()).loss)
        torch.testing.assert_close([*ours.model.parameters()], [*theirs.model.parameters()])


CLIPPED = {
    "adam": lambda p: torch.optim.Adam(p, 0.01),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01),
    "sgd": lambda p: torch.optim.SGD(p, 0.2, 0.9),
    "straight-through": lambda p: torch.optim.Adam(p, 0.01),
}
RATES = {"adam": 0.01, "adamw": 0.01, "sgd": 0.2, "straight-through": 0.01}


@pytest.mark.parametrize("largest", [0.05, 0.4, 100.0])
@pytest.mark.parametrize("name", CLIPPED)
def test_gradients_are_clipped_as_torch_clips_them(name: str, largest: float) -> None:
    model, method = _net().double(), methods.create(name, _net().double(), lr=RATES[name], clip_norm=largest)
    optimizer = CLIPPED[name](model.parameters())
    for seed in range(4):
        x = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        y = torch.tensor([0, 1, 2, 0, 1, 2])
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), largest)
        assert 0.05 < norm < 100, "one of the limits acts and one does not"
        optimizer.step()
        method.step(x, y)
        torch.testing.assert_close([*model.parameters()], [*method.model.parameters()], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("largest", [0.05, 100.0])
@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_every_member_of_an_ensemble_is_clipped_by_itself(name: str, largest: float) -> None:
    def made() -> list[Any]:
        nets = [nn.Sequential(*(copy.deepcopy(_net()))).double() for _ in range(2)]
        nn.init.constant_(nets[1][2].bias, 3.0)
        return [methods.create(name, net, lr=0.05, clip_norm=largest) for net in nets]

    ensemble, alone = Ensemble(made()), made()
    for seed in range(3):
        x = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        y = torch.tensor([0, 1, 2, 0, 1, 2])
        ensemble.step(x, y)
        for i, method in enumerate(alone):
            method.step(x, y)
            for a, b in zip(ensemble.member(i).parameters(), method.model.parameters(), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)
    with pytest.raises(ValueError, match=r"clip_norm is None in member 0 but 1.0 in member 1"):
        Ensemble([methods.create(name, _net()), methods.create(name, _net(), clip_norm=1.0)])


def test_a_norm_that_cannot_be_is_refused() -> None:
    for name in ("adam", "sgd", "straight-through"):
        with pytest.raises(ValueError, match="clip_norm of Backprop must be a finite number above 0, given 0"):
            methods.create(name, _net(), clip_norm=0)
