"""The estimators' training: which epoch is kept, when it ends, that random numbers are its own."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import altmin
from altmin.sklearn.training import Rows, Training


class Counting(nn.Module):
    """A model that counts: every step adds 1 to its weight. Its loss on rows held back follows `losses`."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, x: Any) -> Any:
        return self.weight * x


class Steps:
    """A method in whose steps nothing is learnt: the model's weight is the number of steps."""

    optimizer = None

    def __init__(self, losses: list[float]) -> None:
        self.model, self.losses, self.seen, self.ended = Counting(), losses, [], 0
        self.modes: list[bool] = []

    def step(self, x: Any, y: Any) -> Any:
        self.seen.append(x[:, 0].tolist())
        self.modes.append(self.model.training)
        with torch.no_grad():
            self.model.weight += 1
        return type("Metrics", (), {"loss": torch.tensor(self.losses[self.ended])})

    def end_epoch(self) -> None:
        self.ended += 1

    def state_dict(self) -> dict[str, Any]:
        return {"ended": self.ended}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.ended = state["ended"]


def training(losses: list[float], batch_size: int = 2) -> Training:
    return Training(Steps(losses), nn.MSELoss(), None, batch_size, torch.Generator().manual_seed(0).get_state())


ROWS = Rows(np.arange(5.0)[:, None], torch.zeros(5, 1, dtype=torch.float64))


def test_an_epoch_sees_every_row_once_in_mini_batches() -> None:
    run = training([0.5])
    run.fit(ROWS, None, 1, 0.0, 1)
    assert [len(part) for part in run.method.seen] == [2, 2, 1]
    assert sorted(row for part in run.method.seen for row in part) == [0, 1, 2, 3, 4]
    assert run.method.seen != [[0, 1], [2, 3], [4]]
    assert all(run.method.modes)
    assert not run.method.model.training


def test_one_pass_keeps_the_order_of_the_rows() -> None:
    run = training([0.5])
    run.once(ROWS)
    assert run.method.seen == [[0, 1], [2, 3], [4]]


def test_training_ends_when_the_loss_has_not_fallen_for_so_many_epochs() -> None:
    run = training([1.0, 0.5, 0.45, 0.44, 0.43, 0.1])
    run.fit(ROWS, None, 6, 0.1, 3)
    assert run.losses == pytest.approx([1.0, 0.5, 0.45, 0.44, 0.43])
    assert int(run.method.model.weight.detach()) == 15  # 5 epochs of 3 steps, none gone back to


def test_with_rows_held_back_the_epoch_with_their_lowest_loss_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    held = iter([0.9, 0.4, 0.6, 0.395, 0.7, 0.8, 0.1])
    monkeypatch.setattr(Training, "mean_loss", lambda self, rows: next(held))
    run = training([1.0] * 7)
    run.fit(ROWS, ROWS, 7, 0.01, 4)
    assert run.held_losses == [0.9, 0.4, 0.6, 0.395, 0.7, 0.8]  # 0.395 is lower, by less than tol
    assert int(run.method.model.weight.detach()) == 4 * 3
    assert run.method.ended == 4


def test_the_loss_of_rows_is_their_weighted_mean() -> None:
    torch.manual_seed(0)
    model = nn.Linear(1, 1).double()
    run = Training(altmin.methods.create("adam", model), nn.MSELoss(), None, 2, torch.get_rng_state())
    w = np.array([1.0, 2.0, 0.5, 1.0, 3.0])
    errors = (run.outputs(ROWS.X) - ROWS.t).square().flatten().numpy()
    assert run.mean_loss(ROWS) == pytest.approx(errors.mean())
    assert run.mean_loss(ROWS._replace(w=w)) == pytest.approx(np.average(errors, weights=w))


def test_the_loss_of_an_epoch_is_the_mean_over_rows_by_their_weight() -> None:
    torch.manual_seed(0)
    frozen = altmin.methods.create("sgd", nn.Linear(1, 1).double(), loss=nn.MSELoss(), lr=0.0)
    run = Training(frozen, nn.MSELoss(), None, 2, torch.get_rng_state())
    w = np.array([1.0, 2.0, 0.5, 1.0, 3.0])
    for rows in (ROWS, ROWS._replace(w=w)):
        run.once(rows)
        assert run.losses[-1] == pytest.approx(run.mean_loss(rows))


def test_random_numbers_are_its_own_and_go_on() -> None:
    state = torch.get_rng_state()
    first, second = training([0.5] * 2), training([0.5] * 2)
    first.fit(ROWS, None, 2, 0.0, 5)
    for _ in range(2):
        torch.rand(3)
        second.fit(ROWS, None, 1, 0.0, 5)
    assert first.method.seen == second.method.seen
    assert first.method.seen[:3] != first.method.seen[3:]
    torch.set_rng_state(state)
    training([0.5]).once(ROWS)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_mode_for_evaluation_comes_back_after_a_failure() -> None:
    run = training([math.nan])
    run.method.step = lambda x, y: 1 / 0
    with pytest.raises(ZeroDivisionError):
        run.once(ROWS)
    assert not run.method.model.training


def test_a_loss_that_is_not_finite_ends_the_training() -> None:
    with pytest.raises(altmin.Diverged, match="the loss is not finite; lower the learning rate"):
        training([0.5, math.nan]).fit(ROWS, None, 2, 0.0, 5)


@pytest.mark.parametrize(
    "weight, where", [(math.nan, "training diverged: weight is not finite"), (1e308, "the network's output")]
)
def test_a_network_that_is_not_finite_after_the_last_step_is_noticed(weight: float, where: str) -> None:
    for train in (lambda run: run.fit(ROWS, None, 1, 0.0, 5), lambda run: run.once(ROWS)):
        run = training([0.5])
        run.method.end_epoch = lambda run=run: run.method.model.weight.data.fill_(weight)
        with pytest.raises(altmin.Diverged, match=where):
            train(run)


def test_outputs_for_rows_held_back_are_finite_in_the_end() -> None:
    run = training([0.5])
    with pytest.raises(altmin.Diverged, match="the network's output"):
        run.fit(ROWS, ROWS._replace(X=np.full((5, 1), 1e308)), 1, 0.0, 5)
