"""The rate falls as 1 / t, and the steps are plain SGD's with it."""

import copy

import pytest
import torch
from torch import nn

from altmin.continual.falling_rate import falling_sgd


def test_a_step_is_gradient_descent_with_the_rate_of_its_number() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2)).double()
    expected = copy.deepcopy(model)
    learner = falling_sgd(model, lr=0.4, batches=2.0)
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.arange(5) % 2
    for rate in (0.4, 0.4 / 1.5, 0.4 / 2, 0.4 / 2.5):
        learner.step(x, y)
        loss = nn.functional.cross_entropy(expected(x), y)
        gradients = torch.autograd.grad(loss, list(expected.parameters()))
        with torch.no_grad():
            for p, g in zip(expected.parameters(), gradients, strict=True):
                p -= rate * g
        for p, q in zip(model.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(p, q)


def test_options_out_of_range_are_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    with pytest.raises(ValueError, match="batches of FallingRate must be a finite number above 0, given 0"):
        falling_sgd(model, batches=0)
    with pytest.raises(ValueError, match="lr of falling-sgd must be a finite number of at least 0, given -1"):
        falling_sgd(model, lr=-1)
