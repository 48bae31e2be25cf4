"""The picture of `altmin compare` shows the numbers of the result, all of them, and nothing else."""

import pytest
from compared import result
from matplotlib.figure import Figure

from altmin.cli.compare_picture import draw, learning_curve


def test_a_curve_has_the_early_evaluations_and_the_ends_of_the_epochs() -> None:
    assert learning_curve(result(), "am-adam") == {50: [0.90, 0.92], 250: [0.96, 0.97], 500: [0.95, 0.95]}


def test_where_an_epoch_ends_its_own_value_counts() -> None:
    """An offline method has learnt nothing at its last batch, and something at the epoch's end."""
    assert learning_curve(result(batches_per_epoch=50), "adam")[50] == [0.94, 0.94]


def test_the_lines_drawn_are_the_means_and_the_legend_says_where_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: kept.append(self))
    draw(result())
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
    assert draw(extreme, "svg").lstrip().startswith(b"<?xml")
