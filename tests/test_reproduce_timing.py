"""Times leave out the first epoch, and are of one seed after the other."""

import pytest
import torch
from commands import made_up  # noqa: F401  (a fixture)
from torch import Tensor

from altmin.paper.reproduce.measurement import Setting
from altmin.paper.reproduce.run import Run
from altmin.paper.reproduce.timing import Timing, seconds_per_epoch, unevenness

# ruff: noqa: F811

ROW = {"rows": 450, "epochs": [{"seconds": s} for s in (50.0, 1.0, 3.0, 2.0)]}


def test_the_first_epoch_does_not_count() -> None:
    timing = Timing("adam", "mlp-1x4", batch_size=200)
    assert timing.points(ROW, "batches") == [(0, 0.0), (3, 1.0), (6, 4.0), (9, 6.0)]
    assert timing.points(ROW, "epochs") == [(0, 0.0), (1, 1.0), (2, 4.0), (3, 6.0)]
    assert seconds_per_epoch(ROW) == 2.0


def test_time_that_grows_evenly_lies_on_a_line() -> None:
    assert unevenness({"epochs": [{"seconds": s} for s in (7.0, 2.0, 2.0, 2.0)]}) == pytest.approx(0)
    # after one of three epochs a sixth of the time is over instead of a third, after two two thirds
    assert unevenness(ROW) == pytest.approx(1 / 3 - 1 / 6)


def test_it_is_another_measurement_than_the_run_and_needs_a_gpu_to_be_recorded() -> None:
    given = ("adam", "mlp-1x4")
    assert Timing(*given).config() != Run(*given).config()
    assert Timing(*given).config() != Timing(*given, recorded=True).config()
    setting = Setting(torch.device("cpu"))
    assert Timing(*given).lacking(setting) == ""
    assert Timing(*given, recorded=True).lacking(setting) == "recorded steps need a GPU (--device cuda)"


def test_a_row_has_every_epochs_seconds_and_on_a_processor_no_memory(made_up: tuple[Tensor, Tensor]) -> None:
    timing = Timing("adam", "mlp-1x4", batch_size=20, limit=60, epochs=3)
    rows = timing.make([0, 1], Setting(torch.device("cpu")), lambda *_: None)
    assert [(row["seed"], row["rows"], len(row["epochs"]), row["peak_memory"]) for row in rows] == [
        (0, 60, 3, None),
        (1, 60, 3, None),
    ]
    assert all(point["seconds"] > 0 for row in rows for point in row["epochs"])


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_memory_is_that_of_steps_without_samples_and_evaluations() -> None:
    setting = Setting(torch.device("cuda"))
    small, large = (
        Timing("adam", f"mlp-1x{width}", limit=400, epochs=2).make([0], setting, lambda *_: None)[0]["peak_memory"]
        for width in (10, 2000)
    )
    parameters = 1990 * 785 * 4  # bytes that the larger net has more, at least, and as many again for each moment
    assert 3 * parameters < large - small < 6 * parameters
