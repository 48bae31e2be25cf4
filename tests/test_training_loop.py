"""The loop shows a method the data in an order fixed by the seed, and measures without disturbing."""

from dataclasses import dataclass
from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from altmin import methods
from altmin.common.errors import Diverged
from altmin.training import EachBatch, Progress, epoch_order, fit

Samples = tuple[Tensor, Tensor]


def problem(n: int = 50, seed: int = 0) -> Samples:
    """Three classes, told apart by the largest of three noisy features."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=generator)
    return x, x[:, :3].argmax(1)


class NoisyAlways(nn.Module):
    """Noise in evaluation too: one that moved the random state would show in the training."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.3, training=True)


def learner(*extra: nn.Module, seed: int = 0, **options: Any) -> methods.Method:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), *extra, nn.Linear(8, 3))
    return methods.create("adam", model, **{"lr": 0.01, **options})


@dataclass
class Loss:
    loss: Tensor


class Recorder:
    """A method that learns nothing and writes down what it saw; sample i is the number i."""

    def __init__(self, model: nn.Module | None = None, losses: Any = None):
        self.model = model or nn.Linear(1, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.seen: list[list[int]] = []
        self.rates: list[float] = []
        self.ends: list[int] = []
        self.losses = losses

    def step(self, x: Tensor, y: Tensor) -> Loss:
        assert torch.equal(x[:, 0].long(), y), "a sample came with another's label"
        self.seen.append(y.tolist())
        self.rates.append(self.optimizer.param_groups[0]["lr"])
        return Loss(torch.tensor(float(len(self.seen)) if self.losses is None else self.losses.pop(0)))

    def end_epoch(self) -> None:
        self.ends.append(len(self.seen))

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def numbered(n: int) -> Samples:
    return torch.arange(float(n))[:, None], torch.arange(n)


def test_each_epoch_shows_every_sample_once_in_an_order_of_its_own() -> None:
    recorder = Recorder()
    fit(recorder, numbered(11), epochs=3, batch_size=4)
    assert [len(batch) for batch in recorder.seen] == [4, 4, 3] * 3
    epochs = [list(chain(*recorder.seen[i : i + 3])) for i in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(11)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert recorder.ends == [3, 6, 9]


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    def seen(seed: int, noise: int) -> list[list[int]]:
        recorder = Recorder()
        torch.manual_seed(noise)
        fit(recorder, numbered(9), epochs=2, batch_size=4, seed=seed)
        return recorder.seen

    assert seen(3, noise=0) == seen(3, noise=1)
    assert seen(3, noise=0) != seen(4, noise=0)
    assert list(chain(*seen(3, 0)[3:])) == epoch_order(9, seed=3, epoch=1).tolist()


def test_only_batch_norm_loses_a_last_batch_of_one() -> None:
    plain, normed = nn.Linear(1, 2), nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2))
    for model, sizes in [(plain, [4, 4, 1]), (normed, [4, 4])]:
        recorder = Recorder(model)
        history = fit(recorder, numbered(9), epochs=1, batch_size=4)
        assert [len(batch) for batch in recorder.seen] == sizes
        assert history.epochs[0]["train_loss"] == (1 + 2 + 3) / 3 if len(sizes) == 3 else (1 + 2) / 2


def test_train_loss_is_the_mean_of_the_steps_losses_of_that_epoch() -> None:
    history = fit(Recorder(losses=[1.0, 2.0, 6.0, 10.0, 20.0, 30.0]), numbered(9), epochs=2, batch_size=4)
    assert [row["train_loss"] for row in history.epochs] == [3.0, 20.0]


def test_an_early_evaluation_gives_what_stopping_there_gives() -> None:
    train, test = problem(), problem(40, seed=1)
    method = learner(nn.Dropout(0.2))
    history = fit(method, train, test, epochs=2, batch_size=20, seed=5, eval_batches=[4, 2, 4])

    by_hand = learner(nn.Dropout(0.2))
    expected, batches = [], 0
    for epoch in range(2):
        for rows in epoch_order(50, 5, epoch).split(20):
            by_hand.step(train[0][rows], train[1][rows])
            batches += 1
            by_hand.model.eval()
            right = (by_hand.model(test[0]).argmax(1) == test[1]).double().mean().item()
            by_hand.model.train()
            expected.append(right)
    assert history.batches == [{"batch": b, "test_accuracy": expected[b - 1]} for b in (2, 4)]
    assert [row["test_accuracy"] for row in history.epochs] == [expected[2], expected[5]]
    assert len(set(expected)) > 1


def test_evaluations_leave_no_trace_in_the_training() -> None:
    runs = []
    for eval_batches, test in [((), None), ((), problem(40, 1)), (range(1, 7), problem(40, 1))]:
        method = learner(NoisyAlways(), nn.BatchNorm1d(8))
        fit(method, problem(), test, epochs=2, batch_size=20, eval_batches=eval_batches)
        runs.append(method.model.state_dict())
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0].values(), other.values(), strict=True))


def test_the_report_follows_every_batch() -> None:
    heard: list[Progress] = []
    fit(Recorder(), numbered(8), epochs=2, batch_size=4, callbacks=[EachBatch(heard.append)])
    assert [(p.batch, p.batches, p.train_loss) for p in heard] == [
        (1, 4, 1),
        (2, 4, 1.5),
        (3, 4, 3),
        (4, 4, 3.5),
    ]


def test_a_loss_that_is_not_finite_says_where_and_when() -> None:
    with pytest.raises(Diverged, match="the loss in epoch 2, batch 2 of 3 is not finite; lower the learning rate"):
        fit(Recorder(losses=[1.0, 1.0, 1.0, 1.0, float("inf")]), numbered(9), epochs=3, batch_size=4)


def test_a_methods_own_divergence_keeps_its_place_and_remedy() -> None:
    class Breaking(Recorder):
        def step(self, x: Tensor, y: Tensor) -> Loss:
            if len(self.seen) == 1:
                raise Diverged("block 3", "raise mu")
            return super().step(x, y)

    with pytest.raises(Diverged, match=r"block 3 in epoch 1, batch 2 of 3 is not finite; raise mu$") as caught:
        fit(Breaking(), numbered(9), epochs=3, batch_size=4)
    assert caught.value.where == "block 3 in epoch 1, batch 2 of 3"


def test_whatever_ends_a_run_the_optimizer_has_its_first_rate_again() -> None:
    recorder = Recorder(losses=[1.0, 1.0, float("nan")])
    with pytest.raises(Diverged):
        fit(recorder, numbered(9), epochs=3, batch_size=4, schedule="linear")
    assert recorder.rates == pytest.approx([0.5, 0.5 * 8 / 9, 0.5 * 7 / 9])
    assert recorder.optimizer.param_groups[0]["lr"] == 0.5


def test_parameters_that_are_not_finite_stop_the_run_though_no_loss_has_told() -> None:
    class Breaking(Recorder):
        def end_epoch(self) -> None:
            nn.init.constant_(self.model.get_parameter("bias"), float("nan"))

    told: list[Progress] = []
    with pytest.raises(Diverged, match="bias in epoch 1, batch 3 of 3 is not finite"):
        fit(Breaking(), numbered(9), epochs=3, batch_size=4, callbacks=[EachBatch(told.append)])
    assert told[-1].history.epochs == [], "that epoch has no row"


@pytest.mark.parametrize(
    "change, message",
    [
        ({"epochs": 0}, "epochs of fit must be a whole number of at least 1, given 0"),
        ({"batch_size": -2}, "batch_size of fit must be a whole number of at least 1, given -2"),
        ({"train": (torch.ones(0, 6), torch.ones(0))}, "train of fit has no samples"),
        ({"train": (torch.ones(3, 6), torch.ones(2))}, "there are 3 samples but 2 labels"),
        ({"test": (torch.ones(3, 6), torch.ones(2))}, "there are 3 samples but 2 labels"),
        ({"eval_batches": [7]}, "cannot evaluate after batch 7: .* the run's 1 to 6"),
        ({"eval_batches": [0]}, "cannot evaluate after batch 0"),
        ({"eval_batches": [1], "test": None}, "that needs test samples"),
        ({"schedule": "cosin"}, "unknown schedule 'cosin'; did you mean 'cosine'"),
        ({"schedule": "cosine/hour"}, "unknown schedule 'cosine/hour'"),
        ({"resume": True}, "say from which checkpoint file"),
        ({"checkpoint_every": 3}, "checkpoint_every needs a checkpoint file"),
    ],
)
def test_a_wrong_setting_is_refused_and_nothing_is_trained(change: dict[str, Any], message: str) -> None:
    method = learner()
    before = {name: value.clone() for name, value in method.model.state_dict().items()}
    arguments: dict[str, Any] = {
        "train": problem(),
        "test": problem(),
        "epochs": 2,
        "batch_size": 20,
        **change,
    }
    with pytest.raises(ValueError, match=message):
        fit(method, **arguments)
    assert all(torch.equal(before[name], value) for name, value in method.model.state_dict().items())


class RowRecorder(Recorder):
    """A method that keeps something for each sample."""

    takes_rows = True

    def step(self, x: Tensor, y: Tensor, rows: Tensor | None = None) -> Loss:
        assert rows is not None
        assert torch.equal(rows, y), "sample i is the number i"
        return super().step(x, y)


def test_a_method_that_keeps_variables_of_samples_is_told_which_they_are() -> None:
    recorder = RowRecorder()
    fit(recorder, numbered(11), epochs=2, batch_size=4)
    assert len(recorder.seen) == 6
