"""Figures: their runs from a table, each made once, and drawn as they are declared."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import made_up  # noqa: F401  (a fixture)
from matplotlib.figure import Figure as Picture
from torch import Tensor

from altmin import methods, models
from altmin.training import fit
from reproduction import draw, folders
from reproduction.entries import Entry, runs_of
from reproduction.figure import Figure, Mark, make
from reproduction.results import Setting
from reproduction.results import Results
from reproduction.run import Run
from reproduction.search import Between
from reproduction.settings import History

# ruff: noqa: F811
SETTING = Setting(torch.device("cpu"), environment={"torch": "x"})

RUNS = [
    Run("adam", "mlp-1x4", epochs=2, batch_size=20, seeds=2, limit=60, eval_batches=(1, 4)),
    Run("am-adam", "mlp-1x4", options={"lr": 0.01}, batch_size=20, seeds=1, limit=60, freeze_first=True),
]

FIGURES = [Figure("fig", "a title", RUNS, ["epochs"], 1)]


def test_every_run_is_made_as_declared_and_says_where_it_comes_from(made_up: tuple[Tensor, Tensor]) -> None:
    results = Results([])
    make(FIGURE, results, SETTING, lambda *_: None)
    assert [(row["config"]["method"], row["seed"]) for row in results.rows] == [
        ("adam", 0),
        ("adam", 1),
        ("am-adam", 0),
    ]
    row = results.rows[1]
    assert row["environment"] == {"torch": "x"}
    assert row["rows"] == 60
    assert row["data"].startswith("60 samples, float32")
    torch.manual_seed(1)
    method = methods.create("adam", models.create("mlp-1x4", (1, 28, 28), 10))
    x, y = made_up
    history = fit(method, (x[:60], y[:60]), (x, y), epochs=2, batch_size=20, seed=1, eval_batches=[1, 4])
    assert [point["test_accuracy"] for point in row["epochs"]] == [p["test_accuracy"] for p in history.epochs]
    assert row["batches"] == history.batches


def test_what_is_there_is_not_made_again(made_up: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def tick(done: int, total: int, text: str) -> None:
        if "am-adam" in text:
            raise Stop

    path = tmp_path / "fig.jsonl"
    with pytest.raises(Stop):
        make(FIGURE, Results.read(path), SETTING, tick)
    kept = Results.read(path)
    assert len(kept.rows) == 2, "the first run was kept when it was done"
    shown: list[str] = []
    make(FIGURE, kept, SETTING, lambda done, total, text: shown.append(text))
    assert set(shown) == {"mnist, mlp-1x4, am-adam"}
    assert not [seed for run in RUNS for seed in Results.read(path).missing(run)]


def test_two_curves_of_one_config_are_measured_once(made_up: tuple[Tensor, Tensor]) -> None:
    figure = Figure("fig", "a title", [replace(RUNS[1], at=at, title="both") for at in (1, 2)], ["share"], 1)
    results = Results([])
    make(figure, results, SETTING, lambda *_: None)
    assert len(results.rows) == 1
    assert [x for x, _ in figure.curves(results, "share")[0].points] == [1, 2]


def test_what_cannot_be_made_here_is_named_and_the_rest_is_made(
    made_up: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "lacking", lambda run, setting: "the moon" if run.method == "adam" else "")
    results = Results([])
    left = make(FIGURE, results, SETTING, lambda *_: None)
    assert left == ["mnist, mlp-1x4, adam: the moon"]
    assert [row["config"]["method"] for row in results.rows] == ["am-adam"]


DRAWN = [Run("adam", "mlp-1x4", seeds=2), Run("sgd", "mlp-1x4", label="plain"), Run("adam", "mlp-2x4")]


def row(run: Run, seed: int, accuracy: float) -> dict[str, Any]:
    epochs = [{"epoch": 1, "test_accuracy": accuracy}]
    return {"config": run.config(), "seed": seed, "rows": 200, "batches": [], "epochs": epochs}


def test_a_panel_for_each_net_a_curve_for_each_run_and_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Picture] = []
    monkeypatch.setattr(draw, "content", lambda picture, kind: drawn.append(picture) or b"")
    results = Results([row(DRAWN[0], 0, 0.2), row(DRAWN[0], 1, 0.4), row(DRAWN[1], 0, 0.5), row(DRAWN[2], 0, 0.7)])
    figure = Figure("f", "the title", DRAWN, ["epochs"], 1, marks=[Mark("mnist, mlp-2x4", 1, 0.98, "AM-Adam 0.98")])
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
    figure = Figure("f", "t", DRAWN[:1], ["epochs"], 1)
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


def test_a_picture_may_have_several_axes_and_panels_measures_and_scales_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Own(Run):
        measure, y_scale = "something else", "log"

    drawn: list[Picture] = []
    monkeypatch.setattr(draw, "content", lambda picture, kind: drawn.append(picture) or b"")
    runs = [Run("adam", "mlp-1x4"), Own("sgd", "mlp-2x4")]
    rows = [{**row(run, 0, 0.5), "epochs": [{"epoch": 1, "test_accuracy": 0.5, "seconds": 7.0}]} for run in runs]
    marks = [Mark("mnist, mlp-1x4", 1, 0.4, "a", "others")]
    draw.draw(Figure("f", "t", runs, ["epochs", "seconds", "batches"], marks=marks, drawn=2), Results(rows), "png")
    shown = [(axes.get_xlabel(), axes.get_ylabel(), axes.get_yscale()) for axes in drawn[0].axes]
    first, second = ("test accuracy", "linear"), ("something else", "log")
    assert shown == [(x, *rest) for rest in (first, second) for x in ("epochs", "seconds")]
    assert [[text.get_text() for text in axes.texts] for axes in drawn[0].axes] == [["others: a"], [], [], []]
    assert [axes.lines[0].get_xydata().tolist() for axes in drawn[0].axes[:2]] == [[[1, 0.5]], [[7, 0.5]]]


def test_marks_of_one_place_share_a_text_and_panels_without_results_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[Picture] = []
    monkeypatch.setattr(draw, "content", lambda picture, kind: drawn.append(picture) or b"")
    marks = [Mark("mnist, mlp-1x4", 1, 0.49, name) for name in ("SGD", "Adam")]
    figure = Figure("f", "t", DRAWN, ["epochs"], 1, marks=marks, bottom=0.1)
    draw.draw(figure, Results([row(DRAWN[0], 0, 0.2)]), "png")
    (axes,) = drawn[0].axes
    assert axes.get_title(loc="left") == "mnist, mlp-1x4"
    assert [text.get_text() for text in axes.texts] == ["paper: SGD, Adam"]
    assert axes.get_ylim()[0] == 0.1


ENTRIES = [
    Entry(
        "sgd",
        {"lr": 0.1, "momentum": 0.0},
        {"lr": Between(0.01, 1.0)},
        search={"trials": 3, "run": {"epochs": 2}},
        paper={"mlp-1x4": 0.2},
    ),
    Entry("admm", run={"batch_size": 500, "label": "ADMM", "epochs": 3}),
]


def test_every_entry_runs_on_every_net_with_what_is_common_and_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "RESULTS", tmp_path)
    runs, searches = runs_of("fig9", ENTRIES, ["mlp-1x4", "mlp-2x4"], epochs=7)
    assert list(runs) == [("mlp-1x4", "sgd"), ("mlp-1x4", "ADMM"), ("mlp-2x4", "sgd"), ("mlp-2x4", "ADMM")]
    assert [run.epochs for run in runs.values()] == [7, 3, 7, 3], "its own come before what is common"
    assert (runs["mlp-1x4", "ADMM"].batch_size, runs["mlp-1x4", "sgd"].batch_size) == (500, 200)
    assert runs["mlp-1x4", "sgd"].options == {"lr": 0.1, "momentum": 0.0}
    assert [(each.run.model, each.run.epochs, each.trials, each.paper) for each in searches] == [
        ("mlp-1x4", 2, 3, {"lr": 0.2}),
        ("mlp-2x4", 2, 3, {}),
    ]


def test_a_run_has_the_options_that_its_search_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "RESULTS", tmp_path)
    _, searches = runs_of("fig9", ENTRIES, ["mlp-1x4"], epochs=7)
    path = folders.history(tmp_path, "fig9")
    path.parent.mkdir(parents=True)
    same = {"config": searches[0].template.config(), "at_batch": None, "seeds": [0], "seed": 0}
    rows = [
        {**same, "trial": n, "options": {"lr": lr}, "accuracy": [a]}
        for n, (lr, a) in enumerate([(0.3, 0.8), (0.4, 0.9)])
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    runs, searches = runs_of("fig9", ENTRIES, ["mlp-1x4"], epochs=7)
    assert runs["mlp-1x4", "sgd"].options == {"lr": 0.4, "momentum": 0.0}
    assert len(searches[0].tried(History.read(path))) == 2, "the search is the same, whatever it has found"
    assert searches[0].start == {"lr": 0.1}
