"""What a run is to do is checked as a whole before it begins."""

from typing import Any

import pytest
import torch
from loop_cases import Pairs, learner, samples, weights
from test_training_loop import Recorder
from torch import nn
from torch.utils.data import DataLoader

from altmin.training import accuracy, fit
from altmin.training.config import RunConfig
from altmin.training.plan import Plan


def test_parts_to_measure_on_may_come_in_any_form_each_under_its_name() -> None:
    parts: dict[str, Any] = {
        "tensors": samples(30, 1),
        "arrays": tuple(t.numpy() for t in samples(30, 2)),
        "dataset": Pairs(*samples(600, 3)),
        "loader": DataLoader(Pairs(*samples(30, 4)), 7),
    }
    method = learner()
    row = fit(method, samples(), parts, epochs=1, batch_size=20, metrics=["accuracy", "loss"]).epochs[0]
    for name, (n, seed) in {"tensors": (30, 1), "arrays": (30, 2), "dataset": (600, 3), "loader": (30, 4)}.items():
        x, y = samples(n, seed)
        assert row[f"{name}_accuracy"] == accuracy(method.model, (x, y))
        expected = nn.functional.cross_entropy(method.model(x), y).item()
        assert row[f"{name}_loss"] == pytest.approx(expected, rel=1e-5)


def test_each_part_has_the_metrics_that_suit_its_targets() -> None:
    plan = Plan(RunConfig(), None, {"a": samples(), "b": (samples()[0], samples()[0])})
    model = learner().model
    measures = plan.measures(plan.tests(model), nn.MSELoss())
    assert {name: [metric.name for metric in metrics] for name, metrics in measures.items()} == {
        "a": ["accuracy"],
        "b": ["loss"],
    }


def test_without_a_known_end_any_later_batch_can_be_evaluated() -> None:
    plan = Plan(RunConfig(epochs=2, eval_batches=[9, 3, 9]), None, samples())
    tests = plan.tests(learner().model)
    assert plan.evaluated(tests, None) == plan.evaluated(tests, 5) == [3, 9]
    with pytest.raises(ValueError, match=r"cannot evaluate after batch 9: .* the run's 1 to 8"):
        plan.evaluated(tests, 4)


@pytest.mark.parametrize(
    "change, error, words",
    [
        (
            {"test": iter([samples()])},
            ValueError,
            "test of fit is needed after every epoch; give a list or a DataLoader, no iterator",
        ),
        ({"test": {"held": iter([samples()])}}, ValueError, "held of fit is needed after every epoch"),
        ({"test": []}, ValueError, "test of fit has no batches"),
        ({"test": {"held": 3}}, TypeError, "held of fit is a pair of tensors or arrays, .*, given int"),
        ({"eval_batches": "12"}, TypeError, "eval_batches of fit is a list of numbers of batches"),
        (
            {"method": nn.Linear(6, 3)},
            TypeError,
            r"fit trains by a method, given a Linear; give altmin.AltMin\(model\)",
        ),
        ({"epochs": 2.5}, ValueError, "epochs of fit must be a whole number"),
        ({"batchsize": 5}, TypeError, r"unknown setting of fit, 'batchsize'; did you mean 'batch_size'\?"),
        ({"precision": "bf61"}, ValueError, r"unknown precision 'bf61'; did you mean 'bf16'\?"),
        (
            {"method": Recorder(), "precision": "bf16"},
            ValueError,
            "steps of Recorder take no context to round products",
        ),
        ({"device": "cpu"}, TypeError, "unknown setting of fit, 'device'"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_is_trained(
    change: dict[str, Any], error: type[Exception], words: str
) -> None:
    method = learner()
    before = weights(method)
    run: dict[str, Any] = {"method": method, "train": samples(), "test": samples(), "epochs": 1, "batch_size": 20}
    with pytest.raises(error, match=words):
        fit(**{**run, **change})
    assert all(map(torch.equal, weights(method), before))
