"""The picture shows the numbers of the result, all of them, and nothing else."""

from pathlib import Path
from typing import Any

import pytest

from altmin import plot
from altmin.cli.summary import table


def result(**config: Any) -> dict[str, Any]:
    def run(method: str, seed: int, early: float, ends: list[float], seconds: float) -> dict[str, Any]:
        rows = [
            {"epoch": i, "train_loss": 1 / i, "test_accuracy": value, "seconds": seconds}
            for i, value in enumerate(ends, 1)
        ]
        return {"method": method, "seed": seed, "batches": [{"batch": 50, "test_accuracy": early}], "epochs": rows}

    return {
        "data": "mnist",
        "model": "mlp-2x100",
        "methods": ["am-adam", "adam"],
        "seeds": [0, 1],
        "config": {
            "epochs": 2,
            "batch_size": 200,
            "evaluated_on": "test",
            "batches_per_epoch": 250,
            "eval_batches": [50],
            **config,
        },
        "runs": [
            run("am-adam", 0, 0.90, [0.96, 0.95], 3.0),
            run("adam", 0, 0.88, [0.94, 0.96], 2.0),
            run("am-adam", 1, 0.92, [0.97, 0.95], 6.0),
            run("adam", 1, 0.88, [0.94, 0.98], 3.0),
        ],
    }


def test_a_curve_has_the_early_evaluations_and_the_ends_of_the_epochs() -> None:
    assert plot.learning_curve(result(), "am-adam") == {50: [0.90, 0.92], 250: [0.96, 0.97], 500: [0.95, 0.95]}


def test_where_an_epoch_ends_its_own_value_counts() -> None:
    """An offline method has learnt nothing at its last batch, and something at the epoch's end."""
    assert plot.learning_curve(result(batches_per_epoch=50), "adam")[50] == [0.94, 0.94]


def test_the_lines_drawn_are_the_means_and_the_legend_says_where_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    monkeypatch.setattr(plot.Figure, "savefig", lambda self, *_, **__: kept.append(self))
    plot.curves(result())
    axes = kept[0].axes[0]
    ours, adam = (line for line in axes.get_lines() if not line.get_label().startswith("_"))
    assert list(ours.get_xdata()) == [50, 250, 500]
    assert list(ours.get_ydata()) == pytest.approx([0.91, 0.965, 0.95])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["am-adam  0.9500", "adam  0.9700"]
    assert ours.get_color() != adam.get_color()
    low, high = axes.get_ylim()
    assert 0.5 < low < 0.88
    assert 0.98 < high < 1


def test_perfect_and_hopeless_runs_can_be_drawn_too() -> None:
    extreme = result()
    extreme["runs"][0]["epochs"][0]["test_accuracy"] = 1.0
    extreme["runs"][1]["batches"][0]["test_accuracy"] = 0.0
    extreme["runs"][2].update(batches=[], epochs=[], diverged="the loss")
    assert plot.curves(extreme, "svg").lstrip().startswith(b"<?xml")


def test_only_pictures_that_can_be_drawn_are_promised() -> None:
    plot.check_format(Path("a.pdf"))
    with pytest.raises(ValueError, match=r"a\.txt should end in \.png or \.svg or \.pdf"):
        plot.check_format(Path("a.txt"))


def test_the_table_gives_mean_and_deviation_over_the_seeds_and_the_time_against_adam() -> None:
    drawn = table(result())
    cells = {str(column.header): list(column.cells) for column in drawn.columns}
    assert cells["method"] == ["am-adam", "adam"]
    assert cells["50 batches"] == ["0.9100 ± 0.0141", "0.8800 ± 0.0000"]
    assert cells["epoch 2"] == ["0.9500 ± 0.0000", "0.9700 ± 0.0141"]
    assert cells["best"] == ["0.9650 ± 0.0071", "0.9700 ± 0.0141"]
    assert cells["train loss"] == ["0.5000 ± 0.0000"] * 2
    assert cells["seconds"] == ["9.0 ± 4.2", "5.0 ± 1.4"]
    assert cells["time / adam"] == ["1.75 ± 0.35", "1.00 ± 0.00"]
