"""What figures measure beside runs: time and memory, weights in parallel, and curves of the theorem."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from altmin import methods, models
from reproduction import Run, Setting
from reproduction.figures.parallel import WeightsInParallel, difference, moved
from reproduction.figures.runtimes import Timing, unevenness

pytest_plugins = ["figure_cases"]


def test_each_blocks_gradients_are_those_of_a_whole_step(made_up: tuple[Tensor, Tensor]) -> None:
    x, y = (part[:20] for part in made_up)
    torch.manual_seed(0)
    am = methods.create("am-sgd", models.create("mlp-2x4", (1, 28, 28), 10), lr=0.1, momentum=0.0)
    before = [p.clone() for p in am.model.parameters()]
    blocks = moved(am, x, y)
    grads = [g for block in reversed(blocks) for g in reversed(block())][::-1]
    am.step(x, y)
    for old, new, grad in zip(before, am.model.parameters(), grads, strict=True):
        torch.testing.assert_close(new, old - 0.1 * grad, rtol=1e-5, atol=1e-7)


def test_all_ways_give_the_same_bits(made_up: tuple[Tensor, Tensor], setting: Setting, quiet: Any) -> None:
    measured = WeightsInParallel("w", "p", "mlp-3x4", 3, batch_size=20, seconds=0.01, seeds=1)
    (row,) = measured.make([0], setting, quiet)
    assert (row["blocks"], row["difference"]) == (4, 0.0)
    assert measured.points({"in_turn": 3.0, "at_once": 2.0}, "layers") == [(3, 1.5)]
    one = [[torch.tensor([1.0, 2.0])], [torch.tensor([3.0])]]
    other = [[torch.tensor([1.0, 2.5])], [torch.tensor([2.0])]]
    assert difference([one, one, other]) == 1.0


ROW = {"rows": 450, "epochs": [{"seconds": s} for s in (50.0, 1.0, 3.0, 2.0)]}
TIMING = Timing("adam", "mlp-1x4", batch_size=200)


def test_the_first_epoch_does_not_count_and_time_that_grows_evenly_lies_on_a_line() -> None:
    assert TIMING.points(ROW, "batches") == [(0, 0.0), (3, 1.0), (6, 4.0), (9, 6.0)]
    assert unevenness({"epochs": [{"seconds": s} for s in (7.0, 2.0, 2.0, 2.0)]}) == pytest.approx(0)
    # after one of three epochs a sixth of the time is over instead of a third, after two two thirds
    assert unevenness(ROW) == pytest.approx(1 / 3 - 1 / 6)


def test_a_timing_has_every_epochs_seconds_and_needs_a_gpu_to_be_recorded(
    made_up: tuple[Tensor, Tensor], setting: Setting, quiet: Any
) -> None:
    assert TIMING.config() != Run("adam", "mlp-1x4", batch_size=200).config()
    assert TIMING.lacking(setting) == ""
    assert "GPU" in replace(TIMING, recorded=True).lacking(setting)
    rows = replace(TIMING, batch_size=20, limit=60, epochs=3).make([0, 1], setting, quiet)
    assert [(row["seed"], len(row["epochs"]), row["peak_memory"]) for row in rows] == [(0, 3, None), (1, 3, None)]
    assert all(point["seconds"] > 0 for row in rows for point in row["epochs"])
