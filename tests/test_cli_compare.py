"""`altmin compare`: each method has the run that `altmin train` gives it; table and picture show the result."""

import re
from pathlib import Path
from typing import Any

import pytest
from commands import COMPARE, altmin, read, without_seconds  # noqa: F401  (a fixture)
from matplotlib.figure import Figure

from altmin.cli.compare import table
from altmin.cli.plot import draw, learning_curve

# ruff: noqa: F811


def test_each_method_has_the_run_that_train_gives_it(altmin: Any) -> None:
    common = ["--eval-batches", "1,4", "--set", "weight_decay=0.1", "--warmup", 3]
    line = ["--methods", "adam,am-adam", "--seeds", 2, "--seed", 4, "--set", "adam.lr=0.01", "--set"]
    assert altmin(*COMPARE, *line, "am-adam.order=weights-first", *common, "--json", "c.json") == 0
    result = read("c.json")
    order = [("adam", 4), ("am-adam", 4), ("adam", 5), ("am-adam", 5)]
    assert [(run["method"], run["seed"]) for run in result["runs"]] == order
    own = {"adam": ["--lr", "0.01"], "am-adam": ["--set", "order=weights-first"]}
    for found in result["runs"]:
        single = ["train", "--method", found["method"], *COMPARE[1:], *common, "--seed", found["seed"]]
        assert altmin(*single, *own[found["method"]], "--json", "run.json") == 0
        expected = without_seconds(read("run.json"))
        assert without_seconds(found)["epochs"] == expected["epochs"]
        assert found["batches"] == expected["batches"]
    assert result["config"]["options"]["am-adam"]["order"] == "weights-first"


def test_one_method_that_diverges_does_not_stop_the_others(altmin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--methods", "sgd,adam", "--set", "sgd.lr=1e30", "--json", "c.json", "--plot", "c.svg"]
    assert altmin(*COMPARE, *line) == 1
    sgd, adam = read("c.json")["runs"]
    assert "is not finite" in sgd["diverged"]
    assert "diverged" not in adam
    assert len(adam["epochs"]) == 2
    out, error = capsys.readouterr()
    assert re.search(r"sgd .*diverged", out)
    assert error.startswith("altmin: sgd, seed 0: training diverged")
    assert Path("c.svg").read_bytes().lstrip().startswith(b"<?xml")


def result(**config: Any) -> dict[str, Any]:
    """Two methods, two seeds, two epochs."""

    def run(method: str, seed: int, early: float, ends: list[float], seconds: float) -> dict[str, Any]:
        rows = [
            {"epoch": i, "train_loss": 1 / i, "test_accuracy": value, "seconds": seconds}
            for i, value in enumerate(ends, 1)
        ]
        return {"method": method, "seed": seed, "batches": [{"batch": 50, "test_accuracy": early}], "epochs": rows}

    settings = {"epochs": 2, "batch_size": 200, "evaluated_on": "test", "measure": "accuracy"}
    return {
        **{"data": "mnist", "model": "mlp-2x100", "methods": ["am-adam", "adam"], "seeds": [0, 1]},
        "config": {**settings, "batches_per_epoch": 250, "eval_batches": [50], **config},
        "runs": [
            run("am-adam", 0, 0.90, [0.96, 0.95], 3.0),
            run("adam", 0, 0.88, [0.94, 0.96], 2.0),
            run("am-adam", 1, 0.92, [0.97, 0.95], 6.0),
            run("adam", 1, 0.88, [0.94, 0.98], 3.0),
        ],
    }


def test_the_table_has_mean_and_deviation_over_the_seeds() -> None:
    ours, adam = table(result())
    assert ours == {
        **{"method": "am-adam", "50 batches": "0.9100 ± 0.0141", "250 batches": "0.9650 ± 0.0071"},
        **{"500 batches": "0.9500 ± 0.0000", "train loss": "0.5000 ± 0.0000", "seconds": "9.0 ± 4.2"},
    }
    assert [adam[name] for name in ("method", "500 batches", "seconds")] == ["adam", "0.9700 ± 0.0141", "5.0 ± 1.4"]


def test_a_curve_has_the_early_evaluations_and_the_ends_of_the_epochs() -> None:
    """Where an epoch ends its own value counts: an offline method learns there."""
    assert learning_curve(result(), "am-adam") == {50: [0.90, 0.92], 250: [0.96, 0.97], 500: [0.95, 0.95]}
    assert learning_curve(result(batches_per_epoch=50), "adam")[50] == [0.94, 0.94]


def test_the_lines_drawn_are_the_means_and_the_legend_says_where_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    draw(result())
    axes = figures[0].axes[0]
    ours, adam = axes.get_lines()
    assert list(ours.get_xdata()) == [50, 250, 500]
    assert list(ours.get_ydata()) == pytest.approx([0.91, 0.965, 0.95])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["am-adam  0.9500", "adam  0.9700"]
    assert ours.get_color() != adam.get_color()


def test_perfect_and_hopeless_runs_can_be_drawn_too() -> None:
    extreme = result()
    extreme["runs"][0]["epochs"][0]["test_accuracy"] = 1.0
    extreme["runs"][1]["batches"][0]["test_accuracy"] = 0.0
    extreme["runs"][2].update(batches=[], epochs=[], diverged="the loss")
    assert draw(extreme).startswith(b"\x89PNG")
