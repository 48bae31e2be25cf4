"""What figures measure besides runs: time and memory, weights in parallel, and curves of the theorem."""

from pathlib import Path

import pytest
import torch
from commands import made_up  # noqa: F401  (a fixture)
from torch import Tensor

from altmin import data, methods, models
from reproduction.figures.parallel import WeightsInParallel, difference, moved
from reproduction.figures.runtimes import Timing, seconds_per_epoch, unevenness
from reproduction.figures.theory import TheoremCurve
from reproduction.results import Setting
from reproduction.run import Run


def test_samples_are_loaded_once_and_only_those_of_one_data_set_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, str, Path]] = []

    def load(name: str, part: str, folder: Path) -> tuple[Tensor, Tensor]:
        asked.append((name, part, folder))
        return torch.arange(6.0).view(3, 2) + len(name), torch.arange(3)

    monkeypatch.setattr(data, "load", load)
    setting = Setting(torch.device("cpu"), tmp_path)
    x, y = setting.samples("mnist", "train", 2)
    assert (x.tolist(), y.tolist()) == ([[5, 6], [7, 8]], [0, 1])
    assert len(setting.samples("mnist", "train")[0]) == 3
    setting.samples("mnist", "test")
    assert asked == [("mnist", "train", tmp_path), ("mnist", "test", tmp_path)]
    setting.samples("higgs", "train")
    assert list(setting.loaded) == [("higgs", "train")]


def test_a_row_says_how_many_samples_and_which_it_had() -> None:
    setting = Setting(torch.device("cpu"))
    first, other = (setting.about((torch.full((4, 2), value), torch.arange(4))) for value in (0.0, 1.0))
    assert first["rows"] == 4
    assert first["data"] != other["data"]


# ruff: noqa: F811
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


def test_the_difference_is_the_largest_entry_between_ways() -> None:
    one = [[torch.tensor([1.0, 2.0])], [torch.tensor([3.0])]]
    other = [[torch.tensor([1.0, 2.5])], [torch.tensor([2.0])]]
    assert difference([one, one]) == 0.0
    assert difference([one, one, other]) == 1.0


def test_all_ways_give_the_same_bits(made_up: tuple[Tensor, Tensor]) -> None:
    measured = WeightsInParallel("w", "p", "mlp-3x4", 3, batch_size=20, seconds=0.01, seeds=1)
    (row,) = measured.make([0], Setting(torch.device("cpu")), lambda *_: None)
    assert (row["blocks"], row["difference"]) == (4, 0.0)
    assert measured.points({"in_turn": 3.0, "at_once": 2.0}, "layers") == [(3, 1.5)]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_streams_of_their_own_give_the_same_gradients() -> None:
    (row,) = WeightsInParallel("w", "p", "mlp-5x64", 5).make([0], Setting(torch.device("cuda")), lambda *_: None)
    assert row["blocks"] == 6
    assert row["difference"] < 1e-6


PROBLEM = {"case": "quadratic", "coupling": 0.5, "condition": 10.0, "times": [1, 2]}
STUDY = {
    "rows": [{**PROBLEM, "K": 2, "mean": [3, 4], "bound": [5, 6]}, {**PROBLEM, "K": 4, "mean": [7, 8], "bound": None}]
}


def test_a_curve_is_the_error_or_the_bound_of_its_problem() -> None:
    error = TheoremCurve("error", "p", blocks=2, coupling=0.5, condition=10.0)
    assert error.points(STUDY, "rounds") == [(1, 3), (2, 4)]
    assert TheoremCurve("bound", "p", blocks=2, shown="bound").points(STUDY, "rounds") == [(1, 5), (2, 6)]
    assert TheoremCurve("error", "p", blocks=4).points(STUDY, "rounds") == [(1, 7), (2, 8)]
    assert TheoremCurve("bound", "p", blocks=4, shown="bound").points(STUDY, "rounds") == []


def test_all_curves_of_one_length_share_a_study() -> None:
    assert TheoremCurve("a", "p", blocks=2).config() == TheoremCurve("b", "q", shown="bound").config()
    assert TheoremCurve("a", "p").config() != TheoremCurve("a", "p").reduced().config()


def test_the_measured_error_falls_and_stays_below_its_bound() -> None:
    curve = TheoremCurve("error", "p", blocks=2, coupling=0.5, condition=10.0, steps=100, runs=40)
    (row,) = curve.make([0], Setting(torch.device("cpu")), lambda *_: None)
    found = next(r for r in row["rows"] if r["case"] == "quadratic" and r["K"] == 2 and r["coupling"] == 0.5)
    assert found["mean"][-1] < found["mean"][0] / 5
    assert all(error <= limit for error, limit in zip(found["mean"], found["bound"], strict=True))


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
