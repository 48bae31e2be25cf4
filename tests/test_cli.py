"""The command line keeps its contract: exact results, one-line errors that leave nothing behind."""

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from altmin import __version__, data, methods, models
from altmin.cli import run
from altmin.fit import accuracy, fit

TRAIN = ["train", "--method", "adam", "--model", "mlp-1x16", "--batch-size", "50", "--limit", "220"]
real_load = functools.cache(data.load)


@pytest.fixture(autouse=True)
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 300 samples of each part: enough to see a difference, few enough to be quick."""

    def load(name: str, split: str, data_dir: Any = None) -> tuple[Tensor, Tensor]:
        x, y = real_load(name, split, data_dir)
        return x[:300], y[:300]

    monkeypatch.setattr(data, "load", load)


@pytest.fixture
def altmin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run([str(each) for each in arguments])


def without_seconds(result: dict[str, Any]) -> dict[str, Any]:
    for row in result["epochs"]:
        assert row.pop("seconds") > 0
    return result


def read(path: str) -> Any:
    return json.loads(Path(path).read_text())


def test_train_writes_what_fit_finds_with_the_same_settings(altmin: Any) -> None:
    arguments = ["--epochs", 2, "--lr", 0.004, "--seed", 3, "--eval-batches", "2,5"]
    assert altmin(*TRAIN, *arguments, "--json", "run.json") == 0
    found = read("run.json")
    x, y = data.load("mnist", "train")
    torch.manual_seed(3)
    method = methods.create("adam", models.create("mlp-1x16", (1, 28, 28), 10), lr=0.004)
    test = data.load("mnist", "test")
    history = fit(method, (x[:220], y[:220]), test, epochs=2, batch_size=50, seed=3, eval_batches=[2, 5])
    assert found["batches"] == history.batches
    expected = [{**row, "seconds": None} for row in history.epochs]
    assert [{**row, "seconds": None} for row in found["epochs"]] == expected
    assert found["epochs"][-1]["test_accuracy"] == accuracy(method.model, test)


def test_the_json_of_train_has_exactly_the_agreed_keys(altmin: Any) -> None:
    assert altmin(*TRAIN, "--eval-batches", "3", "--json", "run.json") == 0
    found = read("run.json")
    assert list(found) == ["data", "model", "method", "seed", "config", "environment", "batches", "epochs"]
    assert [found[key] for key in ("data", "model", "method", "seed")] == ["mnist", "mlp-1x16", "adam", 0]
    assert [list(row) for row in found["batches"]] == [["batch", "test_accuracy"]]
    assert [list(row) for row in found["epochs"]] == [["epoch", "train_loss", "test_accuracy", "seconds"]]
    assert found["config"]["lr"] == 1e-3, "adam's own rate"
    assert found["config"]["train_samples"] == 220
    assert found["environment"]["altmin"] == __version__
    assert found["environment"]["torch"] == torch.__version__
    assert os.sep not in json.dumps(found), "a path has slipped in"


def test_validation_samples_stand_in_for_the_test_samples(altmin: Any) -> None:
    assert altmin(*TRAIN, "--validation", "--eval-batches", "5", "--json", "v.json") == 0
    found = read("v.json")
    assert list(found["epochs"][0]) == ["epoch", "train_loss", "validation_accuracy", "seconds"]
    x, y = data.load("mnist", "train")
    torch.manual_seed(0)
    method = methods.create("adam", models.create("mlp-1x16", (1, 28, 28), 10))
    fit(method, (x[:220], y[:220]), epochs=1, batch_size=50)
    assert found["batches"][0]["validation_accuracy"] == accuracy(method.model, data.load("mnist", "validation"))


def test_an_option_can_be_set_by_name_and_changes_the_run(altmin: Any) -> None:
    sgd = [*TRAIN[:2], "sgd", *TRAIN[3:]]
    for name, more in {"a": [], "b": ["--set", "momentum=0.5"], "c": ["--set", "momentum=0.9"]}.items():
        assert altmin(*sgd, *more, "--json", name) == 0
    a, b, c = (without_seconds(read(name)) for name in "abc")
    assert a["epochs"] == c["epochs"] != b["epochs"], "0.9 is the default"
    assert b["config"]["options"]["momentum"] == 0.5


def test_a_schedule_reaches_the_method(altmin: Any) -> None:
    for schedule in ("constant", "linear"):
        assert altmin(*TRAIN, "--schedule", schedule, "--json", schedule) == 0
    assert read("constant")["epochs"][0]["train_loss"] != read("linear")["epochs"][0]["train_loss"]


def test_a_resumed_command_gives_the_result_of_an_uninterrupted_one(
    altmin: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*TRAIN, "--epochs", 2, "--checkpoint-every", 2, "--checkpoint"]
    assert altmin(*command, "whole", "--json", "whole.json") == 0
    steps, step = [], methods.backprop.Backprop.step

    def interrupted(self: Any, x: Tensor, y: Tensor) -> Any:
        steps.append(1)
        if len(steps) == 8:
            raise KeyboardInterrupt
        return step(self, x, y)

    with monkeypatch.context() as patch:
        patch.setattr(methods.backprop.Backprop, "step", interrupted)
        assert altmin(*command, "run", "--json", "run.json") == 130
    error = capsys.readouterr().err
    assert re.fullmatch(r"altmin: stopped in epoch 2, batch 3 of 5; .* checkpoint is run \(.*--resume.*\)\n", error)
    assert not Path("run.json").exists()
    assert altmin(*command, "run", "--json", "run.json", "--resume") == 0
    assert without_seconds(read("run.json")) == without_seconds(read("whole.json"))


def test_a_run_that_diverges_ends_with_1_and_keeps_the_last_good_checkpoint(
    altmin: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    sgd = [*TRAIN[:2], "sgd", *TRAIN[3:], "--epochs", 3, "--lr", 1e30, "--checkpoint", "run", "--json", "run.json"]
    assert altmin(*sgd) == 1
    error = capsys.readouterr().err
    assert re.fullmatch(r"altmin: training diverged: .* in epoch 1, batch \d of 5 .* checkpoint is run\n", error)
    assert os.listdir() == ["run"]


def test_what_is_not_the_users_mistake_is_not_hidden(altmin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(methods.backprop.Backprop, "step", broken)
    with pytest.raises(RuntimeError, match="a defect"):
        altmin(*TRAIN)


COMPARE = ["compare", "--model", "mlp-1x16", "--batch-size", "50", "--limit", "220", "--epochs", "2"]


def test_compare_gives_each_method_the_run_that_train_gives_it(altmin: Any) -> None:
    early = ["--eval-batches", "1,4"]
    settings = ["--set", "adam.lr=0.01", "--set", "weight_decay=0.1"]
    line = ["--methods", "adam,sgd", "--seeds", 2, "--seed", 4, *early, *settings, "--json", "c.json"]
    assert altmin(*COMPARE, *line) == 0
    result = read("c.json")
    assert [(run["method"], run["seed"]) for run in result["runs"]] == [
        ("adam", 4), ("sgd", 4), ("adam", 5), ("sgd", 5)
    ]  # fmt: skip
    for found in result["runs"]:
        own = ["--set", "weight_decay=0.1", *(["--lr", "0.01"] if found["method"] == "adam" else [])]
        single = ["train", "--method", found["method"], *COMPARE[1:], *early, "--seed", found["seed"], *own]
        assert altmin(*single, "--json", "run.json") == 0
        expected = without_seconds(read("run.json"))
        assert without_seconds(found)["epochs"] == expected["epochs"]
        assert found["batches"] == expected["batches"]


def test_compare_draws_a_picture_and_says_where(altmin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert altmin(*COMPARE, "--methods", "adam,sgd", "--plot", "c.png", "--json", "c.json") == 0
    out = capsys.readouterr().out
    assert Path("c.png").read_bytes().startswith(b"\x89PNG")
    assert "wrote c.png" in out
    adam = next(run for run in read("c.json")["runs"] if run["method"] == "adam")
    row = next(line for line in out.splitlines() if line.split("│")[1:2] == [" adam   "])
    cells = [cell.strip() for cell in row.split("│")[2:-1]]
    accuracies = [epoch["test_accuracy"] for epoch in adam["epochs"]]
    assert cells[:3] == [f"{value:.4f}" for value in [*accuracies, max(accuracies)]]
    assert cells[3] == f"{adam['epochs'][-1]['train_loss']:.4f}"
    assert cells[-1] == "1.00"


def test_one_method_that_diverges_does_not_stop_the_others(altmin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--methods", "sgd,adam", "--set", "sgd.lr=1e30", "--json", "c.json", "--plot", "c.svg"]
    assert altmin(*COMPARE, *line) == 1
    sgd, adam = read("c.json")["runs"]
    assert "is not finite" in sgd["diverged"]
    assert "diverged" not in adam
    assert len(adam["epochs"]) == 2
    out, error = capsys.readouterr()
    assert re.search(r"sgd +│ +diverged", out)
    assert error.startswith("altmin: sgd, seed 0: training diverged")


def test_bench_sets_every_method_against_adam(altmin: Any) -> None:
    line = ["--model", "mlp-1x16,mlp-2x8", "--methods", "sgd", "--batch-size", 20, "--seconds", 0.2]
    assert altmin("bench", *line, "--json", "b.json") == 0
    result = read("b.json")
    assert [(row["model"], row["method"]) for row in result["results"]] == [
        ("mlp-1x16", "adam"), ("mlp-1x16", "sgd"), ("mlp-2x8", "adam"), ("mlp-2x8", "sgd")
    ]  # fmt: skip
    for row in result["results"]:
        assert row["rounds"] >= 7
        if row["method"] == "adam":
            assert row["time_ratio"] == {"median": 1.0, "q1": 1.0, "q3": 1.0}
            assert row["memory_ratio"] == 1.0
    assert list(result["environment"])[:3] == ["python", "torch", "altmin"]


def test_the_installed_command_is_quiet_in_a_pipe_and_help_is_light(tmp_path: Path) -> None:
    code = "import sys; from altmin.cli import main; main()"
    line = [sys.executable, "-c", code, *TRAIN, "--threads", "1", "--json", "run.json"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    found = json.loads((tmp_path / "run.json").read_text())["epochs"][0]
    assert re.search(rf"test accuracy {found['test_accuracy']:.4f}, train loss {found['train_loss']:.4f}", first)
    assert second == "wrote run.json"

    light = (
        "import sys; from altmin.cli import run\n"
        "assert run(['--help']) == run(['train', '--help']) == run(['--version']) == 0\n"
        "assert 'matplotlib' not in sys.modules\n"
    )
    shown = subprocess.run([sys.executable, "-c", light], capture_output=True, text=True, check=True).stdout
    assert "Example: altmin train" in shown
    assert f"altmin {__version__}" in shown


@pytest.mark.parametrize("command", ["train", "compare", "bench", "data"])
def test_every_command_has_help_with_the_common_options(
    command: str, altmin: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert altmin(command, "--help") == 0
    shown = capsys.readouterr().out
    if command != "data":
        assert f"Example: altmin {command}" in shown
        assert all(option in shown for option in ("--device", "--seed", "--json"))
