"""experiments/defaults.py: tasks, runs that can be gone on with, the ranking of settings, the tables."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import altmin

EXPERIMENTS = Path(__file__).resolve().parent.parent / "experiments"


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The experiment's modules, with a suite of one small task in place of its own."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    for name in ("default_data", "default_tasks", "default_runs", "default_table", "default_picture", "defaults"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import default_runs
    import default_table
    import default_tasks
    import defaults

    small = {"line": line(default_tasks), "stream": default_tasks.TASKS["stream"]}
    monkeypatch.setattr(default_runs, "TASKS", small)
    monkeypatch.setattr(default_table, "TASKS", small)
    return type("Suite", (), {"tasks": default_tasks, "runs": default_runs, "table": default_table, "main": defaults})


def line(tasks: Any) -> Any:
    """y = 3x, learned by one weight from 8 samples."""

    def data(split: str) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.linspace(-1, 1, 8)[:, None] + (split != "train")
        return x, 3 * x

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))

    return tasks.Task("line", model, data, 0.01, 4, (2, 5), "error", math.log(2), nn.MSELoss())


def test_a_run_trains_as_a_loop_written_out_would(suite: Any) -> None:
    task = suite.runs.TASKS["line"]
    found = suite.runs.train(task, "adam", {}, 3, "test", suite.runs.Where())
    torch.manual_seed(3)
    model, (x, y) = task.model(), task.load("train")
    optimizer, expected = torch.optim.Adam(model.parameters(), lr=0.01), []
    for batch in range(5):
        rows = altmin.training.epoch_order(8, 3, batch // 2)[4 * (batch % 2) :][:4]
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x[rows]), y[rows]).backward()
        optimizer.step()
        expected.append(nn.functional.mse_loss(model(x + 1), 3 * x + 3).item())
    assert found == [{"batch": 2, "value": expected[1]}, {"batch": 5, "value": expected[4]}]


def test_a_run_that_is_in_the_file_is_not_made_again(suite: Any, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "found.jsonl"
    plan = suite.runs.Plan(["line"], {"adam": [suite.runs.Setting()]}, [0, 1], "validation")
    suite.runs.run_all(file, plan, suite.runs.Where())
    before = file.read_text()
    capsys.readouterr()
    suite.runs.run_all(file, plan, suite.runs.Where())
    assert (file.read_text(), capsys.readouterr().out) == (before, "")
    longer = suite.runs.Plan(["line"], {"adam": [suite.runs.Setting()]}, [0, 1, 2], "validation")
    suite.runs.run_all(file, longer, suite.runs.Where())
    assert [json.loads(text)["seed"] for text in file.read_text().splitlines()] == [0, 1, 2]


def test_a_stream_is_predicted_before_it_is_trained_on(suite: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner that knows every sample it was shown, and nothing else, is right only where one comes twice."""

    class Remembers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen: dict[float, int] = {}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.one_hot(torch.tensor([self.seen.get(float(v), 0) for v in x[:, 0]]), 3).float()

    class Learner:
        def __init__(self, model: Remembers, **_: Any):
            self.model = model

        def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
            self.model.seen[float(x[0, 0])] = int(y[0])

        def end_epoch(self) -> None:
            pass

    stream = torch.tensor([[1.0], [2.0], [1.0], [2.0]]), torch.tensor([1, 2, 1, 2])
    task = suite.tasks.Task("stream", Remembers, lambda split: stream, 0.1, 1, (2, 4), "prequential")
    monkeypatch.setattr(altmin.methods, "create", lambda name, model, **given: Learner(model))
    found = suite.runs.train(task, "remembers", {}, 0, "test", suite.runs.Where())
    assert found == [{"batch": 2, "value": 0.0}, {"batch": 4, "value": 0.5}]


def test_an_evaluation_is_the_geometric_mean_of_its_measurements(suite: Any) -> None:
    task = suite.tasks.Task("line", nn.Module, "mnist", 0.1, 1, (20,), "error", measurements=3)
    assert suite.runs._mean(task, {0: 1.0, 10: 10.0, 20: 100.0}, 20) == pytest.approx(10)
    assert suite.runs._mean(task, {0: 1.0, 10: 10.0}, 20) is None, "the run ended before"


def written(suite: Any, path: Path, values: dict[tuple[str, Any], list[float | None]]) -> Path:
    """A results file: by method and share, the error at both points of the task, from one seed."""
    config = suite.runs.TASKS["line"].config
    rows = [
        {"task": "line", "method": method, "options": {} if share is None else {"share": share}, "seed": 0}
        | {"config": config, "rows": [{"batch": b, "value": v} for b, v in zip((2, 5), found, strict=True)]}
        for (method, share), found in values.items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_settings_are_ranked_by_their_gain_over_adam_in_tolerances(suite: Any, tmp_path: Path) -> None:
    """The tolerance is a factor of 2: half of Adam's error gains 1, double loses 1, what diverged loses 3."""
    values: dict[tuple[str, Any], list[float | None]] = {
        ("adam", None): [0.4, 0.2],
        ("am-adam", 0.1): [0.8, 0.2],
        ("am-adam", 0.3): [0.1, 0.1],
        ("am-adam", 1.0): [0.4, None],
    }
    text = suite.table.ranking(written(suite, tmp_path / "choice.jsonl", values))
    assert [cell.split(" | ")[0::3] for cell in text.splitlines()[2:]] == [
        ["| 0.3", "+1.00"],  # the first point's gain of 2 counts as 1
        ["| 0.1", "-0.50"],
        ["| 1.0", "-1.50"],
    ]


def test_the_report_sets_the_defaults_beside_adam(suite: Any, tmp_path: Path) -> None:
    values: dict[tuple[str, Any], list[float | None]] = {("adam", None): [0.4, 0.2], ("am-adam", None): [0.8, 0.15]}
    text = suite.table.report(written(suite, tmp_path / "defaults.jsonl", values))
    assert "| line | 0.01 | 2 | 0.4000 | 0.8000 | × 2.00 |\n| line | 0.01 | 5 | 0.2000 | 0.1500 | × 0.75 |" in text


def test_a_penalty_is_written_as_start_increment_and_maximum(suite: Any) -> None:
    assert [suite.main.penalty(text) for text in ("1", "1:0.2", "1:0.2:100")] == [
        (1.0, 0.0, None),
        (1.0, 0.2, None),
        (1.0, 0.2, 100.0),
    ]
    with pytest.raises(ValueError):
        suite.main.penalty("1:2:3:4")


def test_the_made_data_has_the_statistics_it_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    monkeypatch.delitem(sys.modules, "default_data", raising=False)
    import default_data as made

    x, y = made.friedman("train")
    assert x.mean().abs() < 0.02
    assert (x.std() - 1).abs() < 0.02
    assert y.mean().abs() < 0.05
    assert (y.std() - 1).abs() < 0.03
    x, y = made.onehot("train")
    assert bool((x.sum(1) == 8).all())
    rare = x[:, :50].mean(0)
    assert rare[0] / rare[9] == pytest.approx(10, rel=0.1), "level k in proportion to 1/k"
    x, y = made.repeated("test")
    assert torch.equal(x.argmax(2)[:, :-3], y[:, 3:])
    assert not y[:, :3].any()
