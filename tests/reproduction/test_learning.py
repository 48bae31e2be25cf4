"""How soon nets learn: what is measured when, and rates that are chosen on validation samples alone."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from altmin import data, methods, models
from altmin.training.evaluate import accuracy
from altmin.training.samples import epoch_order
from reproduction import Results, Setting
from reproduction.figures.learning import LEARNING
from reproduction.learning import Learner, Opponent, RateSearch, Task, learners
from reproduction.learning.problems import SummedCrossEntropy
from reproduction.search import history, search

pytest_plugins = ["figure_cases"]

TINY: dict[str, Any] = {"model": "mlp-1x4", "data": "mnist", "batch_size": 20, "limit": 40, "marks": (1, 2)}
TASK = Task("tiny", "a tiny task", {**TINY, "by_marks": True, "seeds": 2}, (0.01, 0.02))
ADAM = Opponent("Adam", "adam")


def a_run(**more: Any) -> Learner:
    return Learner(**{"method": "adam", "options": {"lr": 0.01}, "task": "tiny", **TINY, **more})


def test_the_loss_of_an_autoencoder_is_the_sum_of_cross_entropies_of_pixels_as_mean_over_images() -> None:
    output, y = torch.randn(5, 7, dtype=torch.float64), torch.rand(5, 7, dtype=torch.float64)
    expected = 0.0
    for o, pixel in zip(output.flatten().tolist(), y.flatten().tolist(), strict=True):
        p = 1 / (1 + math.exp(-o))
        expected -= pixel * math.log(p) + (1 - pixel) * math.log(1 - p)
    assert SummedCrossEntropy()(output, y).item() == pytest.approx(expected / 5, rel=1e-12)


def test_a_run_is_measured_after_its_marks_as_a_loop_by_hand_would(
    made_up: tuple[Tensor, Tensor], setting: Setting, quiet: Any
) -> None:
    (row,) = a_run(epochs=2, marks=(1, 3)).make([1], setting, quiet)
    torch.manual_seed(1)
    model = models.create("mlp-1x4", (1, 28, 28), 10)
    method, (x, y), found = methods.create("adam", model, lr=0.01), made_up, {}
    rows = torch.cat([epoch_order(40, 1, epoch) for epoch in range(2)])
    for n, batch in enumerate(rows.split(20), 1):
        method.step(x[batch], y[batch])
        found[n] = accuracy(model, made_up)
    assert [(point["batch"], point["test_accuracy"]) for point in row["points"]] == [(n, found[n]) for n in (1, 3, 4)]
    assert a_run().points(row, "samples") == [(20 * n, found[n]) for n in (1, 3, 4)]
    assert a_run(at_end=True, shown="validation").points(row, "batches") == [(4, found[4])]


def test_a_run_that_diverges_has_its_points_and_the_worst_score(
    made_up: tuple[Tensor, Tensor], setting: Setting, quiet: Any
) -> None:
    (row,) = a_run(method="sgd", options={"lr": 1e30}, epochs=2).make([0], setting, quiet)
    assert "finite" in row["diverged"]
    assert [point["batch"] for point in row["points"]] == [1]
    assert a_run().score(row) == 0.0
    assert a_run(data="anisotropic").score(row) < -1e6
    assert a_run(at_end=True).points(row, "samples") == []


def test_rates_are_chosen_without_the_test_samples(
    made_up: tuple[Tensor, Tensor], folder: Path, monkeypatch: pytest.MonkeyPatch, setting: Setting, quiet: Any
) -> None:
    parts: list[str] = []
    monkeypatch.setattr(data, "load", lambda name, part, data_dir=None: parts.append(part) or made_up)
    scores = {0.01: 0.3, 0.02: 0.5, 0.04: 0.9, 0.08: 0.4, 0.005: 0.0}
    one = Learner.row
    monkeypatch.setattr(Learner, "row", lambda self, options, *rest: {**one(self, options, *rest), "lr": options["lr"]})
    monkeypatch.setattr(Learner, "score", lambda self, row, at_batch=None: scores[row["lr"]])
    runs, searches = learners("fig9", TASK, [ADAM])
    assert "has not been chosen yet" in runs[0].lacking(setting)
    results = Results([], history("fig9"))
    assert search(searches, results, setting, quiet) == []
    assert set(parts) == {"train", "validation"}
    assert [row["options"]["lr"] for row in results.rows] == [0.01, 0.02, 0.04, 0.08], "the grid, and on at its end"
    (run,), _ = learners("fig9", TASK, [ADAM])
    assert (run.options, run.part, run.lacking(setting)) == ({"lr": 0.04}, "test", "")
    (row,) = run.make([0], setting, quiet)
    assert {"test_accuracy", "validation_accuracy"} <= set(row["points"][0])


@pytest.mark.parametrize(
    ("peak", "tried"),
    [
        (4.0, [1, 2, 4, 8]),
        (0.25, [1, 2, 4, 8, 0.5, 0.25, 0.125]),
        (16.0, [1, 2, 4, 8, 16, 32]),
        (1e9, [1, 2, 4, 8, *(2.0**n for n in range(4, 10))]),  # six beyond the grid at most
    ],
)
def test_a_search_goes_on_beyond_its_grid_while_the_end_is_best(peak: float, tried: list[float]) -> None:
    each = RateSearch(a_run(options={"lr": 1.0}), {"lr": (1.0, 2.0, 4.0, 8.0)}, together=1)
    rows: list[dict[str, Any]] = []
    while proposed := each.propose(rows):
        rows += [{"options": options, "accuracy": [-abs(math.log2(options["lr"] / peak))]} for options in proposed]
    assert [row["options"]["lr"] for row in rows] == tried
    assert all(each.holds(row["options"]) for row in rows)
    assert not each.holds({"lr": 3.0})


@pytest.mark.parametrize("task", ["lenet5", "autoencoder", "gpt-6x128", "anisotropic"])
def test_every_method_is_built_on_the_net_of_every_task(task: str) -> None:
    runs = {run.name: run for run in LEARNING.runs if run.task == task}
    assert {"AM-mem", "AM-Adam", "SGD", "SOAP"} <= set(runs)
    for run in runs.values():
        assert run.build(run.options, 0, torch.device("cpu")).model is not None
