"""Reshaping, average pooling, padding, and dropout with one mask for a whole step."""

import pytest
import torch
from calculus_cases import LINEAR, close, contract
from torch import nn

from altmin.calculus import map_of

TestMaps = contract(LINEAR)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(
    "kind, shape",
    [
        (nn.Dropout, (40, 50)),
        (nn.Dropout1d, (40, 50, 3)),
        (nn.Dropout2d, (40, 50, 2, 2)),
        (nn.Dropout3d, (40, 50, 1, 2, 2)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_dropout_keeps_one_mask_for_the_whole_step(kind, shape, training):
    torch.manual_seed(0)
    m = map_of(kind(0.3).train(training))
    x, u, v = torch.rand(3, *shape, dtype=torch.float64) + 0.5
    y, saved = m.forward((), x)
    mask = y / x
    close(m.vjp((), saved, v), v * mask)
    close(m.jvp((), saved, u), u * mask)
    quotient, moved = m.quotient((), saved, u, 0.5)
    close(quotient, u * mask)
    close(m.vjp((), moved, v), v * mask)
    close(m.replay((), saved, x)[0], y)
    if not training:
        assert torch.equal(y, x)
        return
    kept = mask > 0
    close(mask[kept], torch.full_like(mask[kept], 1 / 0.7))
    assert 0.6 < kept.double().mean() < 0.8
    if kind is not nn.Dropout:
        per_channel = kept.flatten(2).double().mean(2)
        assert ((per_channel == 0) | (per_channel == 1)).all(), "whole channels fall out together"


def test_each_pass_draws_a_mask_of_its_own():
    torch.manual_seed(0)
    m, x = map_of(nn.Dropout(0.5)), torch.ones(10, 10)
    assert not torch.equal(m.forward((), x)[0], m.forward((), x)[0])


def test_dropout_of_everything_is_zero():
    m, x = map_of(nn.Dropout(1.0)), torch.ones(3, 4)
    y, saved = m.forward((), x)
    assert not y.any()
    assert not m.vjp((), saved, x).any()


def test_a_reshaped_input_may_fall_as_far_as_before():
    m = map_of(nn.Flatten())
    saved = m.forward((), torch.zeros(1, 2, 2))[1]
    assert m.room(saved, None) is None
    close(m.room(saved, torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])), torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
