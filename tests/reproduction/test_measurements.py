"""Measured runs are what they say they are, and what pages claim is so in the results."""

import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import altmin
from reproduction.__main__ import run
from reproduction.case import Case
from reproduction.figure import Figure, make
from reproduction.measurements import binary, continual, defaults, estimators, networks, recurrent, results, streams
from reproduction.measurements.tasks import Task
from reproduction.results import Results, Row, Setting

HERE = Setting(torch.device("cpu"))


def quiet(*_: Any) -> None:
    pass


def measured(case: Case, seed: int, setting: Setting) -> Row:
    return {"value": case["scale"] * seed}


def test_what_is_in_the_file_is_not_measured_again_and_another_device_is_named(tmp_path: Path) -> None:
    cases = [Case(measured, {"scale": 2}, {"lr": 0.1}), Case(measured, {"scale": 1, "device": "cuda"})]
    rows = Results.read(tmp_path / "a.jsonl")
    (left,) = make(Figure("a", "", cases), rows, HERE, quiet)
    assert "--device cuda" in left
    assert [row["value"] for row in rows.of(cases[0])] == [0, 2, 4]
    before = (tmp_path / "a.jsonl").read_text()
    make(Figure("a", "", cases), Results.read(tmp_path / "a.jsonl"), HERE, quiet)
    assert (tmp_path / "a.jsonl").read_text() == before


def test_a_measurement_is_made_end_to_end(tmp_path: Path) -> None:
    """A preview of the scaling table: torch's pipelines and ours on two processes, with equal gradients."""
    assert run(["figure", "scaling", "--quick", "--out", str(tmp_path)]) == 0
    (row,) = Results.read(tmp_path / "scaling-quick.jsonl").rows
    apart = {name: each["difference"] for name, each in row["found"].items() if each["difference"] is not None}
    assert set(apart) == {name for name in row["found"] if " " in name}
    assert max(apart.values()) < 1e-4


def line() -> Task:
    """The task y = 3x, learned from 8 samples."""

    def data(split: str) -> tuple[Tensor, Tensor]:
        x = torch.linspace(-1, 1, 8)[:, None] + (split != "train")
        return x, 3 * x

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))

    return Task("line", model, data, 0.01, 4, (2, 5), "error", math.log(2), nn.MSELoss())


@pytest.fixture
def of_line(monkeypatch: pytest.MonkeyPatch) -> Task:
    task = line()
    monkeypatch.setitem(defaults.TASKS, "line", task)
    return task


def test_a_run_of_the_suite_trains_as_a_loop_written_out_would(of_line: Task) -> None:
    found = defaults.train(defaults.case("line", "adam", {}, "test"), 3, HERE)["rows"]
    torch.manual_seed(3)
    model, (x, y) = of_line.model(), of_line.load("train", HERE)
    optimizer, expected = torch.optim.Adam(model.parameters(), lr=0.01), []
    for batch in range(5):
        some = altmin.training.epoch_order(8, 3, batch // 2)[4 * (batch % 2) :][:4]
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x[some]), y[some]).backward()
        optimizer.step()
        expected.append(nn.functional.mse_loss(model(x + 1), 3 * x + 3).item())
    assert found == [{"batch": 2, "value": expected[1]}, {"batch": 5, "value": expected[4]}]


def test_settings_are_ranked_by_their_gain_over_adam_in_tolerances(
    of_line: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tolerance is a factor of 2: half of Adam's error gains 1, double loses 1, what diverged loses 3."""
    values = {("adam", None): [0.4, 0.2], ("am-adam", 0.1): [0.8, 0.2]}
    values |= {("am-adam", 0.3): [0.1, 0.1], ("am-adam", 1.0): [0.4, None]}
    rows = []
    for (method, share), found in values.items():
        case = defaults.case("line", method, {} if share is None else {"share": share}, "validation")
        points = [{"batch": b, "value": v} for b, v in zip((2, 5), found, strict=True)]
        rows.append({"config": case.config(), "seed": 0, "rows": points})
    monkeypatch.setattr(defaults, "results", lambda name: Results(rows))
    scores = [defaults.score(of_line, {"share": share}) for share in (0.1, 0.3, 1.0)]
    assert scores == pytest.approx([-0.5, 1.0, -1.5])


def test_with_a_share_of_zero_am_is_backprop_with_the_same_recipe() -> None:
    """Codes do not move then, and each block's gradient is backprop's: with the same optimizer, schedule, batches and
    crops so are the losses, up to rounding."""
    images = torch.randn(16, 3, 32, 32), torch.arange(16) % 10
    made_up = {("cifar10", part): images for part in ("train", "validation", "test")}
    few = {"limit": 16, "batch_size": 8, "epochs": 2}
    for model, recipe in (
        ("resnet18-2", {**networks.IMAGES, **few}),
        ("gpt-1x8", {**networks.TEXT, **few, "epochs": 1, "lr": 0.004, "warmup": 1, "steps": 4, "marks": [2]}),
    ):
        backprop, ours = networks.both(model, recipe, share=0.0)
        setting = replace(HERE, loaded=dict(made_up))
        found = [networks.train(case, 0, setting)["points"] for case in (ours, backprop)]
        assert len(found[0]) == len(found[1]) > 1
        for a, b in zip(*found, strict=True):
            for name in a.keys() & {"train_loss", "validation_loss", "test_loss"}:
                assert a[name] == pytest.approx(b[name], rel=1e-3), name


@pytest.mark.filterwarnings("ignore")
def test_a_run_of_estimators_measures_what_a_fit_written_out_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    X, X_test, y, y_test = estimators.split("diabetes", 1)
    scale, unit = StandardScaler().fit(X), y.std()
    net = MLPRegressor(random_state=1).fit(scale.transform(X), (y - y.mean()) / unit)
    predicted = net.predict(scale.transform(X_test)) * unit + y.mean()
    row = estimators.score(estimators.case(estimators.score, "diabetes", ("MLP", "all scaled"), 1), 1, HERE)
    assert row["value"] == pytest.approx(np.sqrt(np.mean((predicted - y_test) ** 2)) / y_test.std())


# Claims of the pages


def test_rates_are_those_that_validation_has_chosen() -> None:
    def best(tries: list[Case], name: str, error: Any) -> float:
        return min(tries, key=lambda case: (error(results(name).all(case)[0]), case.options["lr"])).options["lr"]

    for case in binary.CASES:
        tries = [each for each in binary.TRIED if each.settings == case.settings]
        assert best(tries, "binary", lambda row: -row["curve"][-1]) == case.options["lr"]
    for case in recurrent.CASES:
        tries = [each for each in recurrent.TRIED if each.settings == case.settings]
        chosen = best(tries, "recurrent", lambda row: row["errors"][-1])
        assert chosen == case.options["lr"] or (case["task"], case["model"]) == ("copying-50", "lstm")
    for model in networks.GPTS:
        for method in ("am", "backprop"):
            tries = [each for each in networks.TRIED if (each["model"], each["method"]) == (model, method)]
            (last,) = (each for each in networks.GPTS[model] if each["method"] == method)
            losses = [networks.at(each, "validation_loss")[0] for each in (*tries, last)]
            assert min(losses) == losses[-1]


def test_learners_of_tasks_in_sequence_have_the_options_that_validation_has_chosen() -> None:
    found: dict[tuple[str, str], dict[str, float]] = {}
    for tried in continual.SEARCH:
        rows = results("continual_options").all(tried)
        score = statistics.mean(row.get("average_accuracy", 0.0) for row in rows)
        if tried.options.get("forget", 1.0) == 1.0:
            found.setdefault((tried.name, tried.sequence), {})[str(sorted(tried.options.items(), key=str))] = score
    for name, key in ((continual.KEPT, "am-mem-fitted"), ("Adam", "adam"), ("SGD", "sgd"), ("EWC", "ewc")):
        for sequence, options in zip(("split", "permuted"), continual.LEARNERS[name][1:], strict=True):
            scores = found[key, sequence]
            assert scores[str(sorted(options.items(), key=str))] > max(scores.values()) - 0.01, name


def test_what_the_page_says_of_streams_holds_in_the_file() -> None:
    found = streams.values()
    ours = ("Gauss-Newton", "Gauss-Newton (one net)", "AM-mem", "AM-Adam", "Adam")

    def mean(stream: str, model: str) -> float:
        return statistics.mean(found[stream, model])

    behind = set()
    for name, stream in streams.STREAMS.items():
        best = (min if stream.regression else max)(mean(name, model) for model in ours)
        behind |= {name} if mean(name, "Gauss-Newton") != best else set()
    assert behind == {"chick-weights", "sp500", "airline"}


def test_what_the_page_says_of_probabilities_holds_in_the_file() -> None:
    def mean(measure: str, group: Any, kind: str, way: str = "raw") -> float:
        cases = [estimators.case(estimators.probabilities, data, (kind, way), 3) for data in group]
        return statistics.mean(row[measure] for case in cases for row in results("estimators").all(case))

    six, wrong = estimators.CLASSIFICATION, estimators.NOISY
    for kind in ("AltMin", "am-mem"):
        assert mean("log_loss", six, kind, "temperature") < mean("log_loss", six, kind)
        assert mean("accuracy", wrong, kind, "early stopping") > mean("accuracy", wrong, kind)
    for way in ("temperature", "early stopping"):
        assert mean("ece", wrong, "AltMin", way) < mean("ece", wrong, "AltMin") / 2
