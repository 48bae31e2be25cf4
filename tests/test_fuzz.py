"""The fuzzers of `make fuzz`, with few cases, and that they notice a defect."""

import dataclasses
import random

import pytest
from fuzz import kills, networks, networks_drawn, uses
from fuzz.judge import Judge

import altmin


@pytest.mark.filterwarnings("ignore")
def test_networks_written_at_random_are_trained_as_by_autograd_or_refused() -> None:
    failures: list[str] = []
    counters = networks.fuzz(150, 0, failures)
    assert failures == []
    assert counters["steps as backprop's"] > 150  # not all are refused


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("defect", ["learning rate", "loss"])
def test_a_step_that_departs_from_autograd_is_a_failure(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(50):
        network = networks_drawn.draw(random.Random(seed))
        judge = Judge("case", [])
        try:
            expected = networks.by_autograd(network, seed)
        except Exception:
            continue
        networks.compare(network, seed, expected, judge)
        if judge.compared == 2 and not judge.refused:
            break
    if defect == "loss":
        expected = [dataclasses.replace(expected[0], loss=expected[0].loss * 1.001), *expected[1:]]
    else:
        sgd = altmin.LocalSGD
        monkeypatch.setattr(altmin, "LocalSGD", lambda lr, momentum: sgd(lr * 1.001, momentum))
    judge = Judge("case", [])
    networks.compare(network, seed, expected, judge)
    assert len(judge.failures) == 1


def test_killed_runs_end_as_runs_left_alone() -> None:
    failures: list[str] = []
    assert kills.fuzz(3, 0, failures)["kills"] >= 3
    assert failures == []


def test_uses_drawn_at_random_do_what_plainer_ones_do() -> None:
    failures: list[str] = []
    counters = uses.fuzz(40, 0, failures)
    assert failures == []
    assert sum(counters[use] for use in uses.USES) == 40
