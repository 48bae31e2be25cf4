"""What is measured on test samples: an accuracy, a mean loss, or what the caller wants; without a trace."""

import math

import pytest
import torch
from test_training_loop import Recorder, learner, problem
from torch import Tensor, nn

from altmin import AltMin, Ensemble
from altmin.models import gpt, mlp
from altmin.training import METRICS, accuracy, epoch_order, fit, fit_ensemble, mean_loss
from altmin.training.evaluate import Metric, measure
from altmin.training.sources import Stored


def test_an_evaluation_is_in_evaluation_mode_and_gives_each_layer_its_mode_back() -> None:
    modes = []

    class Spy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            modes.append(self.training)
            return x

    model = nn.Sequential(Spy(), nn.BatchNorm1d(3), nn.Dropout())
    model[1].eval()
    eye = torch.eye(3)
    assert accuracy(model, (eye, torch.tensor([0, 1, 0])), chunk=2) == 2 / 3
    assert modes == [False, False]
    assert [layer.training for layer in model] == [True, False, True]


def test_a_mean_loss_is_that_of_all_samples_at_once() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout(), nn.Linear(5, 2)).double()
    x, y = torch.randn(10, 3, dtype=torch.float64), torch.randn(10, 2, dtype=torch.float64)
    model.eval()
    expected = float((model(x) - y).square().mean().detach())
    model.train()
    state = torch.get_rng_state()
    for chunk in (1, 4, 10, 1000):
        assert mean_loss(model, (x, y), nn.MSELoss(), chunk) == pytest.approx(expected, rel=1e-12)
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state)


def test_without_test_samples_there_is_no_accuracy_and_those_there_are_can_be_named() -> None:
    row = fit(learner(), problem(), epochs=1, batch_size=20).epochs[0]
    assert list(row) == ["epoch", "train_loss", "seconds"]
    parts = {"validation": problem(40, 1), "seen": problem()}
    method = learner()
    row = fit(method, problem(), parts, epochs=1, batch_size=20).epochs[0]
    assert list(row) == ["epoch", "train_loss", "validation_accuracy", "seen_accuracy", "seconds"]
    assert row["validation_accuracy"] == accuracy(method.model, parts["validation"])
    assert row["seen_accuracy"] == accuracy(method.model, parts["seen"])


def regression(n: int, seed: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :3].square()


def squared_error(model: nn.Module, samples: tuple[Tensor, Tensor]) -> float:
    return float((model(samples[0]) - samples[1]).square().mean().detach())


def test_a_regression_reports_the_mean_of_its_own_loss() -> None:
    train, test = regression(50, 0), regression(40, 1)
    by_hand, expected = learner(loss=nn.MSELoss()), []
    for rows in epoch_order(50, 0, 0).split(20):
        by_hand.step(train[0][rows], train[1][rows])
        expected.append(squared_error(by_hand.model, test))
    method = learner(loss=nn.MSELoss())
    history = fit(method, train, test, epochs=1, batch_size=20, eval_batches=[2])
    assert history.batches == [{"batch": 2, "test_loss": pytest.approx(expected[1], rel=1e-6)}]
    assert list(history.epochs[0]) == ["epoch", "train_loss", "test_loss", "seconds"]
    assert history.epochs[0]["test_loss"] == pytest.approx(expected[2], rel=1e-6)


def test_what_is_measured_can_be_chosen_and_named() -> None:
    def error(output: Tensor, y: Tensor) -> Tensor:
        return (output.argmax(1) != y).double().mean()

    plain = fit(learner(), problem(), problem(40, 1), epochs=1, batch_size=20).epochs[0]
    for given, key in ((error, "test_error"), ([error], "test_error"), ({"wrong": error}, "test_wrong")):
        row = fit(learner(), problem(), problem(40, 1), epochs=1, batch_size=20, metrics=given).epochs[0]
        assert row[key] == pytest.approx(1 - plain["test_accuracy"], abs=1e-12)
        assert "test_accuracy" not in row
    ensemble = Ensemble([learner(), learner(seed=1)])
    found = fit_ensemble(ensemble, problem(), problem(40, 1), epochs=1, batch_size=20, metrics=error)
    for i, history in enumerate(found):
        right = accuracy(ensemble.member(i), problem(40, 1))
        assert history.epochs[0]["test_error"] == pytest.approx(1 - right, abs=1e-12)


def test_numbers_as_targets_have_no_default_where_the_loss_is_unknown() -> None:
    train = torch.arange(4.0)[:, None], torch.arange(4)
    test = torch.ones(4, 1), torch.ones(4, 2)
    recorder = Recorder()
    with pytest.raises(ValueError, match=r"this method's loss is no function; give metrics"):
        fit(recorder, train, test, epochs=1, batch_size=2)
    assert recorder.seen == []
    row = fit(recorder, train, test, epochs=1, batch_size=2, metrics={"score": lambda output, y: 3}).epochs[0]
    assert row["test_score"] == 3


def test_a_function_sees_all_samples_at_once_and_without_a_gradient() -> None:
    seen = []

    def spread(output: Tensor, y: Tensor) -> Tensor:
        seen.append((output.shape, y.tolist(), output.requires_grad))
        return output.max() - output.min()

    model = nn.Sequential(nn.Linear(6, 3))
    x, y = problem(40, 1)
    metrics = [Metric("spread", spread), METRICS["accuracy"]]
    found = measure(model, Stored(x, y), metrics, chunk=7)
    assert seen == [((40, 3), y.tolist(), False)]
    assert found["spread"] == pytest.approx(float((model(x).max() - model(x).min()).detach()), rel=1e-5)
    assert found["accuracy"] == accuracy(model, (x, y))
    with pytest.raises(ValueError, match=r"the metric 'spread' gave float32 40x3; .*gives one number"):
        measure(model, Stored(x, y), [Metric("spread", lambda output, y: output)])


def sequences(n: int) -> tuple[Tensor, Tensor]:
    """Tokens, and as labels the tokens before them; the first has none, and some do not count."""
    x = torch.randint(5, (n, 4), generator=torch.Generator().manual_seed(n))
    y = torch.cat([torch.full((n, 1), -100), x[:, :-1]], 1)
    y[::2, 2:] = -100
    return x, y


def by_hand(model: nn.Module, samples: tuple[Tensor, Tensor]) -> tuple[float, float]:
    """Accuracy and mean loss over the places that count, one at a time."""
    right, losses = [], []
    for x, y in zip(*samples, strict=True):
        for output, label in zip(model(x.unsqueeze(0))[0].detach().double(), y.tolist(), strict=True):
            if label != -100:
                right.append(float(output.argmax() == label))
                losses.append(float(-output.log_softmax(0)[label]))
    return sum(right) / len(right), sum(losses) / len(losses)


def test_sequences_have_an_accuracy_and_a_loss_over_the_labels_that_count() -> None:
    torch.manual_seed(0)
    train, test = sequences(20), sequences(7)
    am = AltMin(gpt(1, 8, 2, 4, 5))
    history = fit(am, train, test, epochs=1, batch_size=10, eval_batches=[1])
    assert list(history.epochs[0]) == ["epoch", "train_loss", "test_accuracy", "test_loss", "seconds"]
    assert list(history.batches[0]) == ["batch", "test_accuracy", "test_loss"]
    expected = by_hand(am.model, test)
    assert [history.epochs[0][key] for key in ("test_accuracy", "test_loss")] == pytest.approx(expected, rel=1e-5)
    for chunk in (1, 4, 9, 1000):
        assert accuracy(am.model, test, chunk) == pytest.approx(expected[0], rel=1e-12)
        assert mean_loss(am.model, test, am.loss, chunk) == pytest.approx(expected[1], rel=1e-5)


def test_samples_without_a_label_that_counts_have_no_accuracy_of_their_own() -> None:
    model = nn.Identity()
    assert accuracy(model, (torch.eye(3), torch.tensor([0, -100, 0]))) == 0.5
    assert math.isnan(accuracy(model, (torch.eye(3), torch.full((3,), -100))))


def test_a_metric_of_ones_own_may_be_called_accuracy_whatever_the_targets_are() -> None:
    x, y = torch.randn(20, 3), (torch.rand(20, 1) > 0.5).float()

    def own(output: Tensor, y: Tensor) -> Tensor:
        return ((output > 0) == (y > 0)).double().mean()

    am = AltMin(mlp(3, (4,), 1), loss=nn.BCEWithLogitsLoss())
    history = fit(am, (x, y), (x, y), epochs=1, batch_size=10, metrics={"accuracy": own})
    assert history.epochs[0]["test_accuracy"] == float(own(am.model(x), y))
    with pytest.raises(ValueError, match="have no accuracy"):
        fit(am, (x, y), (x, y), epochs=1, batch_size=10, metrics="accuracy")
