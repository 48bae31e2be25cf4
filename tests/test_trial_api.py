"""A short run of the trial of the Python API, and the judge of its calls."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from trial import api
from trial.judge import REFUSED, Judge

import altmin


def test_every_call_succeeds_or_is_refused_in_a_clear_sentence() -> None:
    failures: list[str] = []
    counters = api.trial(600, 0, failures)
    assert failures == []
    assert counters["calls"] >= 600
    assert counters["refused"] > 50
    assert counters["steps compared with backprop"] > 5


def test_a_case_is_the_same_whenever_it_is_run() -> None:
    def drawn(seed: int) -> list[str]:
        return api.case(seed, []).drawn

    alone = drawn(7)
    for seed in range(5, 8):
        last = drawn(seed)
    assert last == alone


def raising(error: Exception) -> Callable[[], Any]:
    def call() -> None:
        raise error

    return call


@pytest.mark.parametrize(
    "error, words",
    [
        (KeyError("weights"), "raised KeyError"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), "raised RuntimeError"),
        (ValueError("no"), "other than one line"),
        (ValueError("two lines,\nof which one is torch's"), "other than one line"),
        (TypeError("'<=' not supported between instances of 'int' and 'str'"), "not the library's"),
        (ValueError("mat1 and mat2 shapes cannot be multiplied"), "not the library's"),
    ],
)
def test_a_refusal_by_another_error_or_in_other_words_is_a_failure(error: Exception, words: str) -> None:
    failures: list[str] = []
    assert Judge("case", failures).call("step", raising(error)) is REFUSED
    assert len(failures) == 1
    assert words in failures[0]


@pytest.mark.parametrize("error", [ValueError("share lies between 0 and 1, given 2"), altmin.Diverged("the objective")])
def test_a_clear_refusal_that_changes_nothing_is_none(error: Exception) -> None:
    failures: list[str] = []
    judge, model = Judge("case", failures), nn.Linear(2, 2)
    assert judge.call("step", raising(error), lambda: model) is REFUSED
    assert (failures, judge.calls, judge.refused) == ([], 1, 1)


def spoiling(model: nn.Linear, value: float, error: Exception | None = None) -> Callable[[], None]:
    def call() -> None:
        with torch.no_grad():
            model.bias.view(-1)[0] = value
        if error:
            raise error

    return call


def test_a_refusal_that_changes_a_weight_and_a_success_that_loses_one_are_failures() -> None:
    failures: list[str] = []
    judge, model = Judge("case", failures), nn.Linear(2, 2)
    judge.call("step", spoiling(model, 3.0, ValueError("refused in clear words")), lambda: model)
    assert "has changed the state" in failures.pop()
    judge.call("step", spoiling(model, 4.0), lambda: model)
    assert failures == []
    judge.call("step", spoiling(model, 5.0), lambda: None, (model,))
    assert "changed its arguments" in failures.pop()
    judge.call("step", spoiling(model, float("nan")), lambda: model)
    assert "not finite" in failures.pop()


def test_a_step_that_departs_from_backprop_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        altmin, "LocalSGD", lambda lr, momentum: altmin.core.weights.local.LocalSGD(lr * 1.001, momentum)
    )
    failures: list[str] = []
    api.trial(200, 0, failures)
    assert any("departs from backprop" in each for each in failures)
