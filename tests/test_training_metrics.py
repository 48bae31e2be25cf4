"""Metrics by name are what their formulas say, entry by entry; what is no metric is refused in a sentence."""

import functools
import math
from typing import Any

import pytest
import torch
from loop_cases import learner, numbers, samples
from torch import Tensor, nn

from altmin.training import fit
from altmin.training.evaluate import METRICS, choose, higher_is_better, measure
from altmin.training.sources import Stored


def found(name: str, output: Tensor, y: Tensor, chunk: int = 1000) -> float:
    return measure(nn.Identity(), Stored(output, y), choose(name, y, None), chunk)[name]


def regression() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(23, 3, generator=generator) * torch.tensor([1.0, 5.0, 0.1]) + 7
    return y + torch.randn(23, 3, generator=generator) * 0.3, y


@pytest.mark.parametrize("chunk", [1, 4, 1000])
def test_errors_are_those_of_a_loop_over_all_entries(chunk: int) -> None:
    output, y = regression()
    errors = [p - q for a, b in zip(output.tolist(), y.tolist(), strict=True) for p, q in zip(a, b, strict=True)]
    mse = sum(e * e for e in errors) / len(errors)
    assert found("mse", output, y, chunk) == pytest.approx(mse, rel=1e-6)
    assert found("rmse", output, y, chunk) == pytest.approx(math.sqrt(mse), rel=1e-6)
    assert found("mae", output, y, chunk) == pytest.approx(sum(map(abs, errors)) / len(errors), rel=1e-6)


@pytest.mark.parametrize("chunk", [1, 4, 1000])
def test_r2_is_the_mean_over_outputs_of_the_variance_that_is_explained(chunk: int) -> None:
    output, y = regression()
    each = []
    for p, q in zip(output.T.tolist(), y.T.tolist(), strict=True):
        mean = sum(q) / len(q)
        left = sum((a - b) ** 2 for a, b in zip(p, q, strict=True))
        each.append(1 - left / sum((b - mean) ** 2 for b in q))
    assert found("r2", output, y, chunk) == pytest.approx(sum(each) / 3, rel=1e-5)
    assert found("r2", output[:, 0], y[:, 0], chunk) == pytest.approx(each[0], rel=1e-5)
    assert found("r2", y, y) == 1.0


def test_r2_of_constant_targets_is_scikit_learns() -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    y = torch.tensor([[2.0, 1.0], [2.0, 3.0]])
    for output in (y, y + 1, y + torch.tensor([1.0, 0.0])):
        assert found("r2", output, y) == pytest.approx(sklearn.r2_score(y.numpy(), output.numpy()))


def test_a_label_among_the_five_largest_outputs_counts_for_top5() -> None:
    output = torch.randn(31, 9, generator=torch.Generator().manual_seed(1))
    y = torch.randint(9, (31,), generator=torch.Generator().manual_seed(2))
    y[::7] = -100
    counted = [(row, label) for row, label in zip(output.tolist(), y.tolist(), strict=True) if label >= 0]
    right = [label in sorted(range(9), key=row.__getitem__)[-5:] for row, label in counted]
    assert 0 < sum(right) < len(right)
    assert found("top5", output, y, 4) == pytest.approx(sum(right) / len(right), rel=1e-12)
    sequences, labels = output[:30].reshape(10, 3, 9), y[:30].reshape(10, 3)
    assert found("top5", sequences, labels) == found("top5", output[:30], y[:30])
    with pytest.raises(ValueError, match="top5 needs 5 classes or more, the output has 4"):
        found("top5", output[:, :4], y)


def test_metrics_of_a_run_have_columns_by_their_names_in_their_order() -> None:
    def largest(output: Tensor, y: Tensor) -> Tensor:
        return (output - y).abs().max()

    method, (x, y) = learner(outputs=2, loss=nn.MSELoss()), numbers(30, 1)
    given = ["r2", "mse", largest, "loss"]
    row = fit(method, numbers(), (x, y), epochs=1, batch_size=20, metrics=given).epochs[0]
    assert list(row)[2:-1] == ["test_r2", "test_mse", "test_largest", "test_loss"]
    output = method.model(x).detach()
    assert row["test_mse"] == pytest.approx(row["test_loss"], rel=1e-5)
    assert row["test_mse"] == pytest.approx(float((output - y).square().mean()), rel=1e-5)
    assert row["test_largest"] == float((output - y).abs().max())
    renamed = fit(method, numbers(), (x, y), epochs=1, batch_size=20, metrics={"e": "mae", "f": largest}).epochs[0]
    assert list(renamed)[2:-1] == ["test_e", "test_f"]


def test_every_name_says_which_values_are_better() -> None:
    assert {name: higher_is_better(f"test_{name}") for name in (*METRICS, "loss")} == {
        "accuracy": True,
        "top5": True,
        "r2": True,
        "mse": False,
        "rmse": False,
        "mae": False,
        "loss": False,
    }
    assert higher_is_better("test_money") is None


FLOATS, LABELS = torch.ones(3, 2), torch.zeros(3, dtype=torch.int64)


@pytest.mark.parametrize(
    "given, targets, error, words",
    [
        ("acuracy", LABELS, ValueError, "unknown metric 'acuracy'; did you mean 'accuracy'"),
        (["mse", 3], FLOATS, TypeError, r"a metric is a name or a function \(output, y\) -> number, given 3"),
        ({"a": 3}, FLOATS, TypeError, "a metric is a name or a function"),
        ([lambda output, y: 0], FLOATS, ValueError, 'a metric without a name of its own is given by one: metrics={"n'),
        ([functools.partial(max)], FLOATS, ValueError, "a metric without a name of its own"),
        (nn.MSELoss, FLOATS, TypeError, "a metric is a name or a function"),
        ("accuracy", FLOATS, ValueError, "targets of type torch.float32 have no accuracy; give metrics such as 'mse'"),
        ("loss", LABELS, ValueError, "this method's loss is no function; give metrics"),
    ],
)
def test_what_is_no_metric_is_refused(given: Any, targets: Tensor, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        choose(given, targets, None)


def test_errors_between_other_shapes_are_refused_rather_than_spread() -> None:
    with pytest.raises(ValueError, match=r"of one shape, given \(4, 1\) and \(4,\); .* y\[:, None\]"):
        found("mse", torch.ones(4, 1), torch.ones(4))
    with pytest.raises(ValueError, match="unknown metric"):
        fit(learner(), samples(), epochs=1, batch_size=20, metrics="rmsle")
