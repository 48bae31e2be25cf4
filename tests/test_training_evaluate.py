"""What is measured on test samples: metrics by name are what their formulas say; nothing leaves a trace."""

import math

import pytest
import torch
from loop_cases import Recorder, learner, numbered, numbers, samples
from torch import Tensor, nn

from altmin import AltMin
from altmin.models import gpt, mlp
from altmin.training import METRICS, accuracy, fit, mean_loss
from altmin.training.evaluate import Metric, choose, higher_is_better, measure
from altmin.training.sources import Stored

CHUNKS = pytest.mark.parametrize("chunk", [1, 4, 1000])


def measured(name: str, output: Tensor, y: Tensor, chunk: int = 1000) -> float:
    return measure(nn.Identity(), Stored(output, y), choose(name, y, None), chunk)[name]


def regression() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(23, 3, generator=generator) * torch.tensor([1.0, 5.0, 0.1]) + 7
    return y + torch.randn(23, 3, generator=generator) * 0.3, y


@CHUNKS
def test_errors_are_those_of_a_loop_over_all_entries(chunk: int) -> None:
    output, y = regression()
    errors = [p - q for a, b in zip(output.tolist(), y.tolist(), strict=True) for p, q in zip(a, b, strict=True)]
    mse = sum(e * e for e in errors) / len(errors)
    assert measured("mse", output, y, chunk) == pytest.approx(mse, rel=1e-6)
    assert measured("rmse", output, y, chunk) == pytest.approx(math.sqrt(mse), rel=1e-6)
    assert measured("mae", output, y, chunk) == pytest.approx(sum(map(abs, errors)) / len(errors), rel=1e-6)
    with pytest.raises(ValueError, match="one shape"):
        measured("mse", torch.ones(4, 1), torch.ones(4))


@CHUNKS
def test_r2_is_the_mean_over_outputs_of_the_variance_that_is_explained(chunk: int) -> None:
    output, y = regression()
    each = []
    for p, q in zip(output.T.tolist(), y.T.tolist(), strict=True):
        mean = sum(q) / len(q)
        left = sum((a - b) ** 2 for a, b in zip(p, q, strict=True))
        each.append(1 - left / sum((b - mean) ** 2 for b in q))
    assert measured("r2", output, y, chunk) == pytest.approx(sum(each) / 3, rel=1e-5)
    assert measured("r2", output[:, 0], y[:, 0], chunk) == pytest.approx(each[0], rel=1e-5)
    assert measured("r2", y, y) == 1.0


def test_r2_of_constant_targets_is_scikit_learns() -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    y = torch.tensor([[2.0, 1.0], [2.0, 3.0]])
    for output in (y, y + 1, y + torch.tensor([1.0, 0.0])):
        assert measured("r2", output, y) == pytest.approx(sklearn.r2_score(y.numpy(), output.numpy()))


def test_a_label_among_the_five_largest_outputs_counts_for_top5() -> None:
    output = torch.randn(31, 9, generator=torch.Generator().manual_seed(1))
    y = torch.randint(9, (31,), generator=torch.Generator().manual_seed(2))
    y[::7] = -100
    counted = [(row, label) for row, label in zip(output.tolist(), y.tolist(), strict=True) if label >= 0]
    right = [label in sorted(range(9), key=row.__getitem__)[-5:] for row, label in counted]
    assert 0 < sum(right) < len(right)
    assert measured("top5", output, y, 4) == pytest.approx(sum(right) / len(right), rel=1e-12)
    sequences, labels = output[:30].reshape(10, 3, 9), y[:30].reshape(10, 3)
    assert measured("top5", sequences, labels) == measured("top5", output[:30], y[:30])


def test_every_name_says_which_values_are_better() -> None:
    better = {name: higher_is_better(f"test_{name}") for name in (*METRICS, "loss", "money")}
    expected = {"accuracy": True, "top5": True, "r2": True, "mse": False, "rmse": False, "mae": False, "loss": False}
    assert better == {**expected, "money": None}


@CHUNKS
def test_a_mean_loss_is_that_of_all_samples_at_once(chunk: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout(), nn.BatchNorm1d(5), nn.Linear(5, 2)).double()
    x, y = torch.randn(10, 3, dtype=torch.float64), torch.randn(10, 2, dtype=torch.float64)
    expected = float((model.eval()(x) - y).square().mean().detach())
    model.train()[3].eval()
    state = torch.get_rng_state()
    assert mean_loss(model, (x, y), nn.MSELoss(), chunk) == pytest.approx(expected, rel=1e-12)
    assert [module.training for module in model] == [True, True, True, False, True], "each layer as it was"
    assert torch.equal(torch.get_rng_state(), state)


def test_columns_are_named_after_parts_and_metrics_in_their_order() -> None:
    row = fit(learner(), samples(), epochs=1, batch_size=20).epochs[0]
    assert list(row) == ["epoch", "train_loss", "seconds"]
    method, parts = learner(), {"validation": samples(40, 1), "seen": samples()}
    row = fit(method, samples(), parts, epochs=1, batch_size=20).epochs[0]
    assert list(row) == ["epoch", "train_loss", "validation_accuracy", "seen_accuracy", "seconds"]
    assert [row[f"{name}_accuracy"] for name in parts] == [accuracy(method.model, part) for part in parts.values()]

    def largest(output: Tensor, y: Tensor) -> Tensor:
        return (output - y).abs().max()

    method, (x, y) = learner(outputs=2, loss=nn.MSELoss()), numbers(30, 1)
    metrics = ["r2", "mse", largest, "loss"]
    row = fit(method, numbers(), (x, y), epochs=1, batch_size=20, metrics=metrics).epochs[0]
    assert list(row)[2:-1] == ["test_r2", "test_mse", "test_largest", "test_loss"]
    output = method.model(x).detach()
    assert row["test_mse"] == pytest.approx(row["test_loss"], rel=1e-5)
    assert row["test_mse"] == pytest.approx(float((output - y).square().mean()), rel=1e-5)
    assert row["test_largest"] == float((output - y).abs().max())
    assert list(fit(method, numbers(), (x, y), epochs=1, batch_size=20).epochs[0])[2:-1] == ["test_loss"]
    renamed = fit(method, numbers(), (x, y), epochs=1, batch_size=20, metrics={"e": "mae", "f": largest}).epochs[0]
    assert list(renamed)[2:-1] == ["test_e", "test_f"]


def test_a_loss_that_is_no_function_has_no_default_for_numbers() -> None:
    train, test = numbered(4), (torch.ones(4, 1), torch.ones(4, 2))
    recorder = Recorder()
    with pytest.raises(ValueError, match="give metrics"):
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
    x, y = samples(40, 1)
    values = measure(model, Stored(x, y), [Metric("spread", spread), METRICS["accuracy"]], chunk=7)
    assert seen == [((40, 3), y.tolist(), False)]
    assert values["spread"] == pytest.approx(float((model(x).max() - model(x).min()).detach()), rel=1e-5)
    assert values["accuracy"] == accuracy(model, (x, y))


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
    expected = by_hand(am.model, test)
    assert [history.epochs[0][key] for key in ("test_accuracy", "test_loss")] == pytest.approx(expected, rel=1e-5)
    for chunk in (1, 9, 1000):
        assert accuracy(am.model, test, chunk) == pytest.approx(expected[0], rel=1e-12)
        assert mean_loss(am.model, test, am.loss, chunk) == pytest.approx(expected[1], rel=1e-5)
    assert accuracy(nn.Identity(), (torch.eye(3), torch.tensor([0, -100, 0]))) == 0.5
    assert math.isnan(accuracy(nn.Identity(), (torch.eye(3), torch.full((3,), -100))))


def test_a_metric_of_ones_own_may_be_called_accuracy_whatever_the_targets_are() -> None:
    x, y = torch.randn(20, 3), (torch.rand(20, 1) > 0.5).float()

    def own(output: Tensor, y: Tensor) -> Tensor:
        return ((output > 0) == (y > 0)).double().mean()

    am = AltMin(mlp(3, (4,), 1), loss=nn.BCEWithLogitsLoss())
    history = fit(am, (x, y), (x, y), epochs=1, batch_size=10, metrics={"accuracy": own})
    assert history.epochs[0]["test_accuracy"] == float(own(am.model(x), y))
