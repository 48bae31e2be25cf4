"""How soon nets learn: what is measured when, and rates that are chosen on validation samples alone."""

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import made_up  # noqa: F401  (a fixture)
from torch import Tensor, nn

from altmin import data, methods, models
from altmin.training.evaluate import accuracy
from altmin.training.samples import epoch_order
from reproduction import folders
from reproduction.__main__ import run as command
from reproduction.figure import Figure, load, make
from reproduction.learning import Learner, Opponent, RateSearch, Task, learners
from reproduction.learning import learner as learner_file
from reproduction.learning.problems import NOISE, OUTPUTS, SMALLEST, SummedCrossEntropy, problem
from reproduction.learning.table import tables
from reproduction.results import Setting
from reproduction.results import Results
from reproduction.search import search
from reproduction.settings import History

# ruff: noqa: F811
SETTING = Setting(torch.device("cpu"), environment={"torch": "x"})
TINY: dict[str, Any] = {"model": "mlp-1x4", "data": "mnist", "batch_size": 20, "limit": 40, "marks": (1, 2)}
TASK = Task("tiny", "a tiny task", {**TINY, "by_marks": True, "seeds": 2}, (0.01, 0.02))
ADAM = Opponent("Adam", "adam")


@pytest.fixture
def setting() -> Setting:
    return replace(SETTING, loaded={})


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of results that figures read."""
    monkeypatch.setattr(folders, "RESULTS", tmp_path / "results")
    (tmp_path / "results/search").mkdir(parents=True)
    return tmp_path / "results"


def quiet(done: int, total: int, text: str) -> None:
    pass


def a_run(**more: Any) -> Learner:
    return Learner(**{"method": "adam", "options": {"lr": 0.01}, "task": "tiny", **TINY, **more})


def test_the_loss_of_an_autoencoder_is_the_sum_of_cross_entropies_of_pixels_as_mean_over_images() -> None:
    output, y = torch.randn(5, 7, dtype=torch.float64), torch.rand(5, 7, dtype=torch.float64)
    expected = 0.0
    for o, pixel in zip(output.flatten().tolist(), y.flatten().tolist(), strict=True):
        p = 1 / (1 + math.exp(-o))
        expected -= pixel * math.log(p) + (1 - pixel) * math.log(1 - p)
    assert SummedCrossEntropy()(output, y).item() == pytest.approx(expected / 5, rel=1e-12)


def test_pixels_are_those_of_the_file_from_0_to_1(setting: Setting) -> None:
    with gzip.open(Path(data.__file__).parent / "files/mnist/t10k-images-idx3-ubyte.gz") as file:
        bytes_ = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
    x, y = problem("mnist-pixels").load(setting, "test", None, 0)
    assert torch.equal(y, torch.from_numpy(bytes_.copy()).float() / 255)
    assert torch.equal(x.flatten(1), y)


def test_inputs_of_the_regression_have_the_declared_variances_and_only_training_targets_noise(setting: Setting) -> None:
    load = problem("anisotropic").load
    x, y = (t.double() for t in load(setting, "test", None, 0))
    variances = torch.linalg.eigvalsh(x.T @ x / len(x)).flip(0)
    assert torch.allclose(variances, torch.logspace(0, math.log10(SMALLEST), 64, dtype=torch.float64), rtol=0.15)
    W = torch.linalg.lstsq(x, y).solution
    assert (x @ W - y).std() < 1e-4, "the targets are linear in the inputs"
    assert y.square().mean() == pytest.approx(1.0, rel=0.3)
    (x, y), (other, _) = load(setting, "train", 5000, 0), load(setting, "train", 5000, 1)
    assert (x.double() @ W - y).std() == pytest.approx(NOISE, rel=0.02)
    assert y.shape == (5000, OUTPUTS)
    assert not torch.equal(x, other), "every seed has samples of its own"


def test_training_windows_are_places_of_the_text_that_depend_on_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    text = torch.arange(41)  # every token tells its place
    windows = text[:-1].view(10, 4), text[1:].view(10, 4)
    monkeypatch.setattr(data, "load", lambda name, split, data_dir=None: windows)
    load = problem("shakespeare").load
    (x, y), (other, _) = (load(replace(SETTING, loaded={}), "train", 300, seed) for seed in (0, 1))
    assert x.shape == (300, 4)
    assert torch.equal(x - x[:, :1], torch.arange(4).expand(300, 4))
    assert torch.equal(y, x + 1)
    assert set(x[:, 0].tolist()) == set(range(37)), "every place, also between the windows that were given"
    assert not torch.equal(x, other)
    assert torch.equal(load(replace(SETTING, loaded={}), "validation", 300, 0)[0], windows[0])


def test_a_run_is_measured_after_its_marks_as_a_loop_by_hand_would(made_up: tuple[Tensor, Tensor]) -> None:
    (row,) = a_run(epochs=2, marks=(1, 3)).make([1], replace(SETTING, loaded={}), quiet)
    torch.manual_seed(1)
    model = models.create("mlp-1x4", (1, 28, 28), 10)
    method, (x, y), found = methods.create("adam", model, lr=0.01), made_up, {}
    rows = torch.cat([epoch_order(40, 1, epoch) for epoch in range(2)])
    for n, batch in enumerate(rows.split(20), 1):
        method.step(x[batch], y[batch])
        found[n] = accuracy(model, made_up)
    assert [(point["batch"], point["test_accuracy"]) for point in row["points"]] == [(n, found[n]) for n in (1, 3, 4)]
    assert all(point["validation_accuracy"] == point["test_accuracy"] for point in row["points"]), "the same samples"
    seconds = [point["seconds"] for point in row["points"]]
    assert seconds == sorted(seconds)
    assert a_run().points(row, "samples") == [(20 * n, found[n]) for n in (1, 3, 4)]
    assert a_run(at_end=True, shown="validation").points(row, "batches") == [(4, found[4])]


def test_evaluations_take_no_seconds(made_up: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(learner_file.time, "perf_counter", lambda: now[0])

    def measured(model: nn.Module, samples: Any) -> float:
        now[0] += 100.0
        return 0.5

    monkeypatch.setattr(learner_file, "accuracy", measured)
    tick = lambda done, total, text: now.__setitem__(0, now[0] + 1.0)  # noqa: E731  every batch takes a second
    (row,) = a_run(epochs=2).make([0], replace(SETTING, loaded={}), tick)
    assert [(point["batch"], point["seconds"]) for point in row["points"]] == [(1, 1.0), (2, 2.0), (4, 4.0)]


def test_a_run_that_diverges_keeps_its_points_and_has_the_worst_score(made_up: tuple[Tensor, Tensor]) -> None:
    (row,) = a_run(method="sgd", options={"lr": 1e30}, epochs=2).make([0], replace(SETTING, loaded={}), quiet)
    assert "is not finite" in row["diverged"]
    assert [point["batch"] for point in row["points"]] == [1]
    assert a_run().score(row) == 0.0
    assert a_run(data="anisotropic").score(row) < -1e6
    assert a_run(at_end=True).points(row, "samples") == []


def test_scores_are_the_end_or_the_mean_over_marks_of_validation_samples() -> None:
    points = [{"validation_accuracy": a, "validation_loss": 2 * a, "test_accuracy": 9.0} for a in (0.2, 0.6)]
    row = {"points": points}
    assert a_run().score(row) == 0.6
    assert a_run(by_marks=True).score(row) == pytest.approx(0.4)
    assert a_run(data="anisotropic").score(row) == -1.2, "of a loss less is better"


def test_rates_are_chosen_without_the_test_samples(
    made_up: tuple[Tensor, Tensor], results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[str] = []

    def split(name: str, part: str, data_dir: Any = None) -> tuple[Tensor, Tensor]:
        parts.append(part)
        return made_up

    monkeypatch.setattr(data, "load", split)
    scores = {0.01: 0.3, 0.02: 0.5, 0.04: 0.9, 0.08: 0.4, 0.005: 0.0}
    monkeypatch.setattr(Learner, "score", lambda self, row, at_batch=None: scores[row["lr"]])
    one = Learner.one
    monkeypatch.setattr(Learner, "one", lambda self, options, *rest: {**one(self, options, *rest), "lr": options["lr"]})
    runs, searches = learners("fig9", TASK, [ADAM])
    assert "has not been chosen yet" in runs[0].lacking(replace(SETTING, loaded={}))
    history = History([], folders.history(results, "fig9"))
    assert search(searches, history, replace(SETTING, loaded={}), quiet) == []
    assert set(parts) == {"train", "validation"}
    assert [row["options"]["lr"] for row in history.rows] == [0.01, 0.02, 0.04, 0.08], "the grid, and on at its end"
    (run,), _ = learners("fig9", TASK, [ADAM])
    assert (run.options, run.part, run.lacking(replace(SETTING, loaded={}))) == ({"lr": 0.04}, "test", "")
    (row,) = run.make([0], replace(SETTING, loaded={}), quiet)
    assert "test" in parts
    assert {"test_accuracy", "validation_accuracy"} <= set(row["points"][0])


@pytest.mark.parametrize(
    ("peak", "tried"),
    [
        (4.0, [1, 2, 4, 8]),
        (1.0, [1, 2, 4, 8, 0.5]),
        (0.25, [1, 2, 4, 8, 0.5, 0.25, 0.125]),
        (16.0, [1, 2, 4, 8, 16, 32]),
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


def test_a_search_stops_some_rates_beyond_its_grid() -> None:
    each = RateSearch(a_run(options={"lr": 1.0}), {"lr": (1.0, 2.0), "weight_decay": (0.0, 0.1)}, together=1)
    rows: list[dict[str, Any]] = []
    while proposed := each.propose(rows):
        rows += [{"options": options, "accuracy": [options["lr"] + options["weight_decay"]]} for options in proposed]
    assert [tuple(row["options"].values()) for row in rows[:4]] == [(1.0, 0.0), (1.0, 0.1), (2.0, 0.0), (2.0, 0.1)]
    assert [tuple(row["options"].values()) for row in rows[4:]] == [(2.0**n, 0.1) for n in range(2, 8)]


def test_what_was_made_is_kept_seed_by_seed(made_up: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    figure, path, made = Figure("f", "t", [a_run(seeds=3)], ["samples"]), tmp_path / "f.jsonl", list[int]()

    def tick(done: int, total: int, text: str) -> None:
        if done > 1000:
            raise Stop

    with pytest.raises(Stop):
        make(figure, Results.read(path), replace(SETTING, loaded={}), tick)
    assert [row["seed"] for row in Results.read(path).rows] == [0]
    make(figure, Results.read(path), replace(SETTING, loaded={}), lambda done, *_: made.append(done))
    assert [row["seed"] for row in Results.read(path).rows] == [0, 1, 2]
    whole = Results([])
    make(figure, whole, replace(SETTING, loaded={}), quiet)
    values = [
        [[point["test_accuracy"] for point in row["points"]] for row in rows.rows]
        for rows in (whole, Results.read(path))
    ]
    assert values[0] == values[1]


def test_runs_that_need_what_is_not_there_are_named_and_the_others_are_made(
    made_up: tuple[Tensor, Tensor], results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = methods.create

    def create(name: str, model: nn.Module, **options: Any) -> Any:
        if name == "sgd":
            raise ModuleNotFoundError("sgd needs nowhere, which is not installed: pip install nowhere")
        return real(name, model, **options)

    monkeypatch.setattr(methods, "create", create)
    opponents = [Opponent("Newton", "newton"), Opponent("SGD", "sgd"), ADAM]
    _, searches = learners("fig9", TASK, opponents)
    history = History([], folders.history(results, "fig9"))
    left = search(searches, history, replace(SETTING, loaded={}), quiet)
    assert left == [
        "a tiny task, Newton: there is no method 'newton'",
        "a tiny task, SGD: sgd needs nowhere, which is not installed: pip install nowhere",
    ]
    runs, _ = learners("fig9", TASK, opponents)
    kept = Results([])
    assert make(Figure("f", "t", runs, ["samples"]), kept, replace(SETTING, loaded={}), quiet) == left
    assert {row["config"]["method"] for row in kept.rows} == {"adam"}


def test_a_task_has_its_own_rates_decays_and_lengths() -> None:
    task = replace(
        TASK, decays=(0.0, 0.1), lengths=({"epochs": 1}, {"epochs": 3}), search={"limit": 20}, steps={"sgd": 100}
    )
    opponents = [Opponent("SGD", "sgd", {"momentum": 0.5}, steps=10, decay=0.01), ADAM]
    runs, searches = learners("fig9", task, opponents)
    assert [(run.name, run.epochs, run.at_end) for run in runs] == [
        (n, e, True) for n in ("SGD", "Adam") for e in (1, 3)
    ]
    assert searches[0].space == {"lr": (1.0, 2.0), "weight_decay": (0.0, 0.001)}
    assert searches[2].space == {"lr": (0.01, 0.02), "weight_decay": (0.0, 0.1)}
    assert searches[0].template.config()["options"] == {"momentum": 0.5}
    assert {(each.template.limit, each.template.part) for each in searches} == {(20, "validation")}
    assert len({json.dumps(each.identity()) for each in searches}) == 4


def test_final_runs_may_train_on_validation_samples_too(made_up: tuple[Tensor, Tensor]) -> None:
    run = a_run(limit=None, refit=True, parts=("test",))
    (row,) = run.make([0], replace(SETTING, loaded={}), quiet)
    assert row["rows"] == 400
    (row,) = replace(run, part="validation").make([0], replace(SETTING, loaded={}), quiet)
    assert row["rows"] == 200


def test_tables_have_a_column_for_each_mark_and_say_what_was_chosen_and_what_diverged() -> None:
    long = [a_run(title="p", label="a", epochs=e, at_end=True, options={"lr": 0.1 * e}) for e in (1, 2)]
    other, sgd, slow = (
        a_run(title="q", label="b", seeds=2, timed=True), a_run(title="q", label="c", method="sgd", timed=True),
        a_run(title="q", label="d", method="sgd", timed=True, options={"lr": 0.5}),
    )  # fmt: skip

    def row(run: Learner, seed: int, *points: tuple[int, float], gpu: Any = "a", **more: Any) -> dict[str, Any]:
        found = [{"batch": n, "seconds": 2.0 * n, "test_accuracy": a} for n, a in points]
        return {"config": run.config(), "seed": seed, "environment": {"gpu": gpu}, "points": found, **more}

    rows = [row(long[0], 0, (1, 0.2), (2, 0.5)), row(long[1], 0, (1, 0.3), (4, 0.75))]
    rows += [row(other, 0, (1, 0.5), (2, 0.25)), row(other, 1, (1, 0.75), diverged="the loss")]
    rows += [row(sgd, 0, (1, 0.1), (2, 0.4)), row(slow, 0, (1, 0.1), (2, 0.4), gpu=None)]
    first, second = tables(Figure("f", "t", [*long, other, sgd, slow], ["samples"]), Results(rows))
    head = ["method", "chosen", "2 batches", "4 batches"]  # no seconds: not made alone
    assert first == ("p: test accuracy", head, [["a", "lr 0.1; lr 0.2", "0.5000", "0.7500"]])
    assert second[1][-1] == "seconds to Adam's end"
    assert second[2] == [
        ["b", "lr 0.01", "0.6250 ± 0.1768", "1 of 2 diverged", "4", "at most 2"],
        ["c", "lr 0.01", "0.1000", "0.4000", "4", "3"],
        ["d", "lr 0.5", "0.1000", "0.4000", "", ""],
    ], "Adam ends at 0.25, and SGD is half way at 3 seconds; what no GPU made shows no seconds"


def test_both_commands_take_some_of_the_runs(
    made_up: tuple[Tensor, Tensor], results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declared = """
from reproduction.learning import Opponent, Task, learners
from reproduction import Figure
RUN = {"model": "mlp-1x4", "data": "mnist", "batch_size": 20, "limit": 40, "marks": (1,), "seeds": 1}
OPPONENTS = [Opponent("Adam", "adam"), Opponent("SGD, slow", "sgd")]
MADE = [learners("some", Task(n, n, RUN, (0.01,)), OPPONENTS) for n in "ab"]
FIGURES = [Figure("some", "t", [r for m in MADE for r in m[0]], ["samples"], searches=[s for m in MADE for s in m[1]])]
"""
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures/some.py").write_text(declared)
    where = ["--figures", str(tmp_path / "figures"), "--results", str(results)]
    assert command(["search", "some", "--only", "a/Adam,b/sgd-slow", *where]) == 0
    tried = {
        (row["config"]["task"], row["config"]["method"]) for row in History.read(results / "search/some.jsonl").rows
    }
    assert tried == {("a", "adam"), ("b", "sgd")}
    assert command(["figure", "some", "--only", "a", *where]) == 0
    assert [row["config"]["method"] for row in Results.read(results / "some.jsonl").rows] == ["adam"]
    assert "`python -m reproduction search some --only a/sgd-slow` does it" in " ".join(capsys.readouterr().out.split())
    assert command(["figure", "some", "--only", "c/adam", *where]) == 2
    assert (
        "no run of some has the words 'c/adam'; its words are Adam, SGD, slow, a, adam, b, sgd, sgd-slow"
        in capsys.readouterr().err
    )


PARAMETERS = {
    "mlp-2x100": 785 * 100 + 101 * 100 + 101 * 10,
    "mlp-20x100": 785 * 100 + 19 * 101 * 100 + 101 * 10,
    "lenet5": 61_706,
    "autoencoder": 785_000 + 500_500 + 125_250 + 7_530 + 7_750 + 125_500 + 501_000 + 784_784,
    "resnet18-64": 11_173_962,
    "gpt-6x128": (65 + 64 + 65) * 128 + 6 * (12 * 128**2 + 9 * 128 + 4 * 128) + 2 * 128,
    "mlp-1x300": 29 * 300 + 301 * 2,
    "linear-16": 64 * 16 + 16 * 16,
}
RUNS = load(folders.FIGURES)["learning"].runs


@pytest.mark.parametrize("name", dict.fromkeys(run.task for run in RUNS))
def test_every_method_that_is_there_is_built_on_the_net_of_every_task(name: str) -> None:
    runs = [run for run in RUNS if run.task == name]
    there = {run.name: run for run in runs if not learner_file.missing_method(run.method, run.options)}
    assert {"AM-mem", "AM-Adam", "SGD"} <= set(there)
    for run in there.values():
        model = run.trainer(run.options, 0, torch.device("cpu")).model
        assert sum(p.numel() for p in model.parameters()) == PARAMETERS[run.model]
