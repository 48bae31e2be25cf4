"""What plotly is given equals the curves worked out by hand: mean, smallest and largest over seeds."""

import json
from dataclasses import replace
from typing import Any

import pytest
from report_cases import ADAM, DEEP, DEPTH, DEPTH_ROWS, LATER, ROWS, SMALL, row

from altmin.paper.plot import COLOURS
from altmin.paper.report.plots import DASHES, SYMBOLS, plot
from altmin.paper.reproduce.figure import Figure
from altmin.paper.reproduce.results import Results
from altmin.paper.reproduce.run import Run


def by_axis(figure: Figure, rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {axis["name"]: axis for axis in plot(figure, Results(rows))["axes"]}


def traces(axis: dict[str, Any], mode: str) -> list[dict[str, Any]]:
    return [trace for trace in axis["data"] if trace["mode"] == mode]


def test_a_line_is_the_mean_and_a_band_goes_there_along_the_largest_and_back_along_the_smallest() -> None:
    axis = by_axis(SMALL, ROWS)["batches"]
    line, band = traces(axis, "lines+markers")[0], traces(axis, "lines")[0]
    # adam: after batches 1 and 2, and after epochs 1 and 2 of four batches each
    assert line["x"] == [1, 2, 4, 8]
    assert line["y"] == pytest.approx([0.2, 0.2, 0.6, (0.6 + 0.8 + 0.9) / 3])
    assert line["customdata"] == [[0.1, 0.3, 3], [0.1, 0.3, 3], [0.5, 0.7, 3], [0.6, 0.9, 3]]
    assert band["x"] == [1, 2, 4, 8, 8, 4, 2, 1]
    assert band["y"] == [0.3, 0.3, 0.7, 0.9, 0.6, 0.5, 0.1, 0.1]


def test_every_axis_has_its_own_places() -> None:
    axes = by_axis(SMALL, ROWS)
    first = {name: traces(axis, "lines+markers")[0] for name, axis in axes.items()}
    assert first["epochs"]["x"] == [0.25, 0.5, 1, 2]
    assert first["seconds"]["x"] == pytest.approx([1.5, 3]), "seeds take 1, 1.5 and 2 seconds an epoch"
    assert first["seconds"]["y"] == pytest.approx([0.6, (0.6 + 0.8 + 0.9) / 3])
    for name, axis in axes.items():
        titles = [value["title"]["text"] for key, value in axis["layout"].items() if key.startswith("xaxis")]
        assert titles == [name, name], "both panels"


def test_an_axis_without_points_is_left_out() -> None:
    figure = replace(SMALL, axes=("layers", *SMALL.axes))
    assert list(by_axis(figure, ROWS)) == ["batches", "epochs", "seconds"]
    assert plot(LATER, Results([])) == {"panels": 1, "axes": []}


def test_a_method_looks_the_same_in_all_panels_and_is_hidden_in_all_at_once() -> None:
    lines = traces(by_axis(SMALL, ROWS)["epochs"], "lines+markers")
    adam, sgd, large = lines
    assert [line["line"]["color"] for line in lines] == [COLOURS[0], COLOURS[1], COLOURS[0]]
    assert adam["legendgroup"] == large["legendgroup"] != sgd["legendgroup"]
    assert [line["showlegend"] for line in lines] == [True, True, False], "the legend has a name once"
    assert [(line["xaxis"], line["yaxis"]) for line in lines] == [("x", "y"), ("x", "y"), ("x2", "y2")]
    bands = traces(by_axis(SMALL, ROWS)["epochs"], "lines")
    assert [band["legendgroup"] for band in bands] == [line["legendgroup"] for line in lines]
    colours = [tuple(int(colour[n : n + 2], 16) for n in (1, 3, 5)) for colour in (COLOURS[0], COLOURS[1], COLOURS[0])]
    assert [band["fillcolor"] for band in bands] == [f"rgba({r}, {g}, {b}, 0.18)" for r, g, b in colours]


def test_what_the_paper_states_is_a_star_on_the_first_axis_alone() -> None:
    axes = by_axis(SMALL, ROWS)
    (star,) = traces(axes["batches"], "markers")
    assert (star["x"], star["y"], star["text"]) == ([8], [0.98], ["paper: AM-Adam 0.98"])
    assert (star["marker"]["symbol"], star["xaxis"]) == ("star", "x2")
    assert not traces(axes["epochs"], "markers")
    assert not traces(axes["seconds"], "markers")


def test_a_curve_keeps_its_identity_from_axis_to_axis() -> None:
    found = [[trace["uid"] for trace in axis["data"] if trace["mode"] != "markers"] for axis in plot_axes()]
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) == 6


def plot_axes() -> list[dict[str, Any]]:
    return list(plot(SMALL, Results(ROWS))["axes"])


def test_few_places_on_a_logarithmic_scale_are_its_ticks() -> None:
    layout = by_axis(DEPTH, DEPTH_ROWS)["layers"]["layout"]
    assert (layout["xaxis"]["type"], layout["xaxis"]["tickvals"]) == ("log", [2, 8, 64])
    assert (layout["yaxis"]["type"], layout["yaxis"]["title"]["text"]) == ("linear", "accuracy at the end")
    many = [Run("adam", f"mlp-{n}x4", at=n, seeds=1, title="deep") for n in range(1, 12)]
    crowded = by_axis(replace(DEPTH, runs=many), [row(run, 0, [0.5]) for run in many])
    assert "tickvals" not in crowded["layers"]["layout"]["xaxis"]
    epochs = by_axis(SMALL, ROWS)["epochs"]["layout"]
    assert "dtick" not in epochs["xaxis"], "adam was looked at within an epoch"
    assert epochs["xaxis2"]["dtick"] == 1


def test_what_is_not_finite_is_a_gap_that_json_can_hold() -> None:
    rows = [row(ADAM, 0, [0.5, float("nan")]), row(ADAM, 1, [0.7, 0.8])]
    axis = by_axis(SMALL, rows)["epochs"]
    assert traces(axis, "lines+markers")[0]["y"] == [pytest.approx(0.6), None]
    assert traces(axis, "lines")[0]["x"] == [1, 1]
    json.dumps(axis, allow_nan=False)


def test_names_are_shown_literally() -> None:
    axis = by_axis(replace(SMALL, runs=[replace(ADAM, label="<b>a</b>", title="<i>p</i>")]), ROWS)["epochs"]
    assert {trace["name"] for trace in axis["data"] if trace["mode"] != "markers"} == {"&lt;b&gt;a&lt;/b&gt;"}
    assert axis["layout"]["annotations"][0]["text"] == "<b>&lt;i&gt;p&lt;/i&gt;</b>"


def test_plotly_knows_every_property_and_every_look_of_a_curve() -> None:
    from plotly.graph_objects import Figure as Checked

    for figure, rows in ((SMALL, ROWS), (DEPTH, DEPTH_ROWS)):
        for axis in by_axis(figure, rows).values():
            Checked(data=axis["data"], layout=axis["layout"])  # raises ValueError for what it does not know
    many = [replace(DEEP[0], label=str(n)) for n in range(28)]
    lines = traces(by_axis(replace(DEPTH, runs=many), DEPTH_ROWS)["layers"], "lines+markers")
    looks = {(line["line"]["color"], line["line"]["dash"]) for line in lines}
    assert len(looks) == 28
    assert {line["line"]["dash"] for line in lines} == set(DASHES.values())
    assert {line["marker"]["symbol"] for line in lines} == set(SYMBOLS.values())
