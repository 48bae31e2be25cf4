"""The picture shows what the results hold: a curve for each run, and the paper's values as marks."""

from typing import Any

import pytest
from matplotlib.figure import Figure as Picture

from altmin.paper.reproduce import draw
from altmin.paper.reproduce.figure import Figure, Mark
from altmin.paper.reproduce.results import Results
from altmin.paper.reproduce.run import Run

RUNS = [Run("adam", "mlp-1x4", seeds=2), Run("sgd", "mlp-1x4", label="plain"), Run("adam", "mlp-2x4")]


def row(run: Run, seed: int, accuracy: float) -> dict[str, Any]:
    epochs = [{"epoch": 1, "test_accuracy": accuracy}]
    return {"config": run.config(), "seed": seed, "rows": 200, "batches": [], "epochs": epochs}


def test_a_panel_for_each_net_a_curve_for_each_run_and_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Picture] = []
    monkeypatch.setattr(draw, "content", lambda picture, kind: drawn.append(picture) or b"")
    results = Results([row(RUNS[0], 0, 0.2), row(RUNS[0], 1, 0.4), row(RUNS[1], 0, 0.5), row(RUNS[2], 0, 0.7)])
    figure = Figure("f", "the title", RUNS, ["epochs"], 1, marks=[Mark("mnist, mlp-2x4", 1, 0.98, "AM-Adam 0.98")])
    draw.draw(figure, results, "png", "a note")
    left, right = drawn[0].axes
    assert [axes.get_title(loc="left") for axes in (left, right)] == ["mnist, mlp-1x4", "mnist, mlp-2x4"]
    curves = {line.get_label(): list(line.get_ydata()) for line in left.lines}
    assert curves["adam"] == pytest.approx([0.3]), "the mean of the seeds"
    assert curves["plain"] == [0.5]
    assert [text.get_text() for text in right.texts] == ["paper: AM-Adam 0.98"]
    assert [list(line.get_ydata()) for line in right.lines] == [[0.7], [0.98]]
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["adam", "plain"], "once for all panels"
    assert drawn[0].get_suptitle() == "the title\na note"
    colour = {line.get_label(): line.get_color() for axes in (left, right) for line in axes.lines}
    assert colour["adam"] != colour["plain"]


def test_it_is_a_file_of_its_format() -> None:
    figure = Figure("f", "t", RUNS[:1], ["epochs"], 1)
    assert draw.draw(figure, Results([]), "png").startswith(b"\x89PNG")


def test_scales_are_those_of_the_figure_and_empty_places_stay_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Picture] = []
    monkeypatch.setattr(draw, "content", lambda picture, kind: drawn.append(picture) or b"")
    runs = [Run("adam", f"mlp-{n}x4", at=n, title=f"panel {n}") for n in (1, 2, 3, 4)]
    results = Results([row(run, 0, 0.1 * run.at) for run in runs])
    draw.draw(Figure("f", "t", runs, ["layers"], 1, measure="accuracy at the end", log="x"), results, "png")
    shown = [axes for axes in drawn[0].axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in shown] == [f"panel {n}" for n in (1, 2, 3, 4)]
    assert {(axes.get_xscale(), axes.get_yscale(), axes.get_ylabel()) for axes in shown} == {
        ("log", "linear", "accuracy at the end")
    }
    assert [axes.lines[0].get_xydata().tolist() for axes in shown[:2]] == [[[1, 0.1]], [[2, 0.2]]]
    drawn[0].canvas.draw()
    assert [label.get_text() for label in shown[1].get_xticklabels()] == ["2"], "the place that was measured"


def test_marks_of_one_place_share_a_text_and_panels_without_results_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[Picture] = []
    monkeypatch.setattr(draw, "content", lambda picture, kind: drawn.append(picture) or b"")
    marks = [Mark("mnist, mlp-1x4", 1, 0.49, name) for name in ("SGD", "Adam")]
    figure = Figure("f", "t", RUNS, ["epochs"], 1, marks=marks, bottom=0.1)
    draw.draw(figure, Results([row(RUNS[0], 0, 0.2)]), "png")
    (axes,) = drawn[0].axes
    assert axes.get_title(loc="left") == "mnist, mlp-1x4"
    assert [text.get_text() for text in axes.texts] == ["paper: SGD, Adam"]
    assert axes.get_ylim()[0] == 0.1
