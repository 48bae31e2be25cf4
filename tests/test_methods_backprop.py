"""Backprop is the loop that people write with torch, its optimizer fused if wanted."""

import copy

import pytest
import torch
from torch import nn

from altmin import methods


@pytest.mark.parametrize("name", ["adam", "sgd"])
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
    for a, b in zip(plain.model.parameters(), fused.model.parameters(), strict=True):
        torch.testing.assert_close(a, b)


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
    for a, b in zip(model.parameters(), method.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_resumed_run_is_the_uninterrupted_one() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(6, 5), torch.tensor([0, 1, 2, 0, 1, 2])
    whole = methods.create("adam", _net(), lr=0.1)
    whole.step(x, y)
    resumed = methods.create("adam", copy.deepcopy(whole.model), lr=0.5)
    resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
    for method in (whole, resumed):
        method.step(x, y)
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_sequence_of_labels_is_taken_as_so_many_samples() -> None:
    """A net that looks at each place alone learns from (samples, time, features) what it learns from rows."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))
    x, y = torch.randn(2, 6, 3), torch.randint(4, (2, 6))
    losses = (None, nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=2))
    for loss in losses:
        ours, theirs = (methods.create("sgd", copy.deepcopy(model), loss=loss) for _ in range(2))
        torch.testing.assert_close(ours.step(x, y).loss, theirs.step(x.flatten(0, 1), y.flatten()).loss)
        for a, b in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
            torch.testing.assert_close(a, b)
