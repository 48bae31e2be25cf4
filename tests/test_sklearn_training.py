"""The estimators' training: which rows it takes and how they are standardised, when it ends, whose random numbers."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import altmin
from altmin.sklearn.training import Rows, Training


class Steps:
    """A method in whose steps nothing is learnt but their number, which is the model's weight; its losses are given."""

    optimizer = None

    def __init__(self, losses: list[float]) -> None:
        self.model, self.losses, self.seen, self.ended = nn.Linear(1, 1, bias=False).double(), losses, [], 0
        nn.init.zeros_(self.model.weight)

    def step(self, x: Any, y: Any) -> Any:
        assert self.model.training
        self.seen.append(x[:, 0].tolist())
        with torch.no_grad():
            self.model.weight += 1
        return type("Metrics", (), {"loss": torch.tensor(self.losses[self.ended])})

    def end_epoch(self) -> None:
        self.ended += 1


def training(losses: list[float]) -> Any:
    return Training(Steps(losses), nn.MSELoss(), 2, torch.Generator().manual_seed(0).get_state())


ROWS = Rows(np.arange(5.0)[:, None], torch.zeros(5, 1, dtype=torch.float64))


def test_an_epoch_sees_every_row_once_and_a_pass_keeps_their_order() -> None:
    run = training([0.5])
    run.fit(ROWS, None, 1, 0.0, 1)
    assert [len(part) for part in run.method.seen] == [2, 2, 1]
    assert sorted(row for part in run.method.seen for row in part) == [0, 1, 2, 3, 4]
    assert run.method.seen != [[0, 1], [2, 3], [4]]
    run = training([0.5])
    run.once(ROWS)
    assert run.method.seen == [[0, 1], [2, 3], [4]]
    assert not run.method.model.training


def test_training_ends_when_the_loss_has_not_fallen_for_so_many_epochs() -> None:
    run = training([1.0, 0.5, 0.45, 0.44, 0.43, 0.1])
    run.fit(ROWS, None, 6, 0.1, 3)
    assert run.losses == pytest.approx([1.0, 0.5, 0.45, 0.44, 0.43])
    assert run.method.model.weight.item() == 15  # 5 epochs of 3 steps, none gone back to


def test_losses_are_means_over_rows_by_their_weight() -> None:
    torch.manual_seed(0)
    frozen = altmin.methods.create("sgd", nn.Linear(1, 1).double(), loss=nn.MSELoss(), lr=0.0)
    run = Training(frozen, nn.MSELoss(), 2, torch.get_rng_state())
    w = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0], dtype=torch.float64)
    errors = (run.outputs(ROWS.X) - ROWS.t).square().flatten().numpy()
    for table, expected in ((ROWS, errors.mean()), (ROWS._replace(w=w), np.average(errors, weights=w))):
        run.once(table)
        assert run.mean_loss(table) == pytest.approx(expected)
        assert run.losses[-1] == pytest.approx(expected)


@pytest.mark.parametrize("weight", [math.nan, 1e308])
def test_a_network_that_is_not_finite_after_the_last_step_is_noticed(weight: float) -> None:
    for train in (lambda run: run.fit(ROWS, None, 1, 0.0, 5), lambda run: run.once(ROWS)):
        run = training([0.5])
        run.method.end_epoch = lambda run=run: run.method.model.weight.data.fill_(weight)
        with pytest.raises(altmin.Diverged):
            train(run)
    with pytest.raises(altmin.Diverged):
        training([0.5]).fit(ROWS, ROWS._replace(X=np.full((5, 1), 1e308)), 1, 0.0, 5)
