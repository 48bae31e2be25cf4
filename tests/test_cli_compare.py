"""`altmin compare` gives each method the run that `altmin train` gives it."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import COMPARE, altmin, read, without_seconds  # noqa: F401  (a fixture)

from altmin import data, methods, models
from altmin.training import fit

# ruff: noqa: F811


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


def test_compare_gives_the_solver_to_the_methods_that_have_codes(altmin: Any) -> None:
    line = ["--model", "binary-16", "--epochs", "1", "--methods", "am-adam,adam", "--json", "c.json"]
    assert altmin("compare", *line, "--codes", "straight-through", "--freeze-first") == 0
    found = read("c.json")["config"]
    assert found["options"]["am-adam"]["codes"] == "straight-through"
    assert "codes" not in found["options"]["adam"]
    assert found["freeze_first"] is True


def test_compare_gives_share_order_and_cuts_to_the_methods_that_have_codes(altmin: Any) -> None:
    line = [*COMPARE, "--model", "mlp-2x16", "--methods", "am-adam,adam", "--json", "c.json"]
    assert altmin(*line, "--order", "weights-first", "--share", 0.2, "--at", "2", "--warmup", 3) == 0
    found = read("c.json")
    options = found["config"]["options"]
    given = {"order": "weights-first", "share": 0.2, "at": ["2"]}
    assert {name: options["am-adam"][name] for name in given} == given
    assert not set(given) & set(options["adam"])
    for run in found["runs"]:
        torch.manual_seed(0)
        own = given if run["method"] == "am-adam" else {}
        method = methods.create(run["method"], models.create("mlp-2x16", (1, 28, 28), 10), **own)
        x, y = data.load("mnist", "train")
        history = fit(method, (x[:220], y[:220]), epochs=2, batch_size=50, warmup=3)
        assert [row["train_loss"] for row in run["epochs"]] == [row["train_loss"] for row in history.epochs]
