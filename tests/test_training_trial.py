"""Runs by name: what is checked before the first, and what is told on the way."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from altmin import models
from altmin.training.config import RunConfig
from altmin.training.trial import Trial

RUN = RunConfig("adam", "mlp-1x16", "mnist", batch_size=20)


def test_a_last_batch_of_one_sample_is_counted_unless_the_model_has_batch_norm() -> None:
    """Of 41 samples in batches of 20 a third batch is left, which batch norm cannot learn from."""
    samples = torch.randn(41, 1, 28, 28), torch.randint(10, (41,))
    trial = Trial(RUN, samples, samples)
    assert trial.check([RUN]) == 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "create", lambda *_: nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.BatchNorm1d(10)))
        assert trial.check([RUN]) == 2


def test_runs_in_turn_count_their_batches_through() -> None:
    samples = torch.randn(40, 1, 28, 28), torch.randint(10, (40,))
    runs = [replace(RUN, method=method, seed=seed, epochs=2) for method, seed in (("adam", 5), ("sgd", 6))]
    seen = []
    Trial(RUN, samples, samples).in_turn(runs, lambda done, total, text: seen.append((done, total, text)))
    assert seen == [
        *((n, 8, "adam, seed 5") for n in (1, 2, 3, 4)),
        *((n, 8, "sgd, seed 6") for n in (5, 6, 7, 8)),
    ]
