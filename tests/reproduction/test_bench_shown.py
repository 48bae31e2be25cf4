"""What `python -m reproduction speed` shows of its measurements: tables and a picture."""

from typing import Any

import pytest
from benched import BARS, LINES, result, row, spread

from altmin.cli.plot import COLOURS
from reproduction.speed import picture
from reproduction.speed.table import table


def test_a_bar_is_a_ratio_with_its_quartiles_over_the_name_of_its_net() -> None:
    axes = picture.bars(BARS).axes[0]
    eager, graph = axes.containers[1], axes.containers[3]
    assert (eager.get_label(), graph.get_label()) == ("am-adam, eager", "am-adam, graph")
    assert [bar.get_height() for bar in eager] == [1.5, 1.1]
    assert [bar.get_height() for bar in graph] == [0.8, 0.7]
    (whiskers,) = eager.errorbar.lines[2]
    assert [sorted(y for _, y in ends) for ends in whiskers.get_segments()] == [
        pytest.approx([0.9 * m, 1.2 * m]) for m in (1.5, 1.1)
    ]
    assert [label.get_text() for label in axes.get_xticklabels()] == [
        "mlp-2x100\nmnist\nbatch 200",
        "lenet5\nmnist\nbatch 50",
    ]
    for place, bars in zip(axes.get_xticks(), zip(eager, graph, strict=True), strict=True):
        left, right = (bar.get_x() for bar in bars)
        assert place - 0.5 < left < right < place + 0.5
    assert [text.get_text() for text in axes.texts] == ["1.50", "1.10", "0.80", "0.70"]


def test_the_yardstick_is_a_line_at_one_and_no_bar() -> None:
    figure = picture.bars(BARS)
    axes = figure.axes[0]
    (line,) = (each for each in axes.get_lines() if each.get_label() == "adam")
    assert list(line.get_ydata()) == [1, 1]
    shown = {text.get_text() for text in figure.legends[0].get_texts()}
    assert shown == {"adam", "am-adam, eager", "am-adam, graph"}
    assert "adam in the same mode" in axes.get_ylabel()
    assert "a processor, 2 threads, torch 2.0" in axes.get_title(loc="left")
    assert axes.get_ylim()[0] == 0


def test_methods_differ_in_colour_modes_in_hatching_and_members_in_strength() -> None:
    rows = [
        row("m", method, 1.0, mode, n) for method in ("adam", "x", "y") for mode in ("eager", "graph") for n in (1, 8)
    ]
    bars = {c.get_label(): c[0] for c in picture.bars(result(rows)).axes[0].containers if hasattr(c, "errorbar")}
    colour = {name: bar.get_facecolor()[:3] for name, bar in bars.items()}
    assert len(bars) == 8
    assert colour["x, eager, 1 member"] == colour["x, graph, 1 member"] != colour["y, eager, 1 member"]
    assert sum(colour["x, eager, 8 members"]) > sum(colour["x, eager, 1 member"])
    assert bars["x, eager, 1 member"].get_hatch() != bars["x, graph, 1 member"].get_hatch()


def test_what_grows_is_drawn_as_lines_over_its_size_with_bands() -> None:
    ratios, samples = picture.lines(LINES).axes
    (ours,) = (line for line in ratios.get_lines() if line.get_label() == "am-adam")
    assert (list(ours.get_xdata()), list(ours.get_ydata())) == ([2, 8], [2.0, 2.0])
    band = ratios.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == pytest.approx((1.8, 2.4))
    rates = {line.get_label(): list(line.get_ydata()) for line in samples.get_lines()}
    assert rates == {"adam": pytest.approx([2e5, 2e5]), "am-adam": pytest.approx([1e5, 1e5])}
    assert {axes.get_xscale() + axes.get_yscale() for axes in (ratios, samples)} == {"loglog"}
    assert ratios.get_xlabel() == samples.get_xlabel() == "hidden layers"
    assert samples.get_ylabel() == "samples a second"
    assert [line.get_color() for line in samples.get_lines()] != [COLOURS[0]] * 2


@pytest.mark.parametrize("made", [BARS, LINES])
def test_it_is_a_picture(made: dict[str, Any]) -> None:
    assert picture.draw(made, "svg").lstrip().startswith(b"<?xml")


def test_the_table_goes_by_net_and_mode_and_leaves_out_what_does_not_vary() -> None:
    cells = {str(column.header): list(column.cells) for column in table(BARS).columns}
    assert cells["model"] == ["mlp-2x100"] * 4 + ["lenet5:50"] * 4
    assert cells["mode"] == ["eager", "eager", "graph", "graph"] * 2
    assert cells["time / adam"][1] == "1.50 (1.35 to 1.80)"
    assert cells["ms per step"][3] == "0.800 (0.720 to 0.960)"
    assert cells["samples / s"][1] == "133,333"
    assert cells["time / best backprop"][1] == "3.00 (2.70 to 3.60)"
    assert table(BARS).caption == "best backprop on mlp-2x100: adam, graph; on lenet5:50: adam, graph"
    assert not {"members", "time / 1 member", "depth"} & set(cells)
    assert [each.end_section for each in table(BARS).rows] == [False, True, False, True, False, True, False, False]


def test_the_table_has_the_columns_that_a_result_calls_for() -> None:
    rows = [
        row("mlp-2x100", "adam", 1.0, "compile", 1, ratio_to_variants={"adam:fused=true": spread(2.0)}),
        row("mlp-2x100", "adam", 1.0, "graph", 8, ratio_to_variants={"adam:fused=true": None}, size=8),
    ]
    rows[0].update(size=1)
    cells = {str(column.header): list(column.cells) for column in table(result(rows, grow="members")).columns}
    assert cells["members"] == ["1", "8"]
    assert cells["ms per member"] == ["1.0000", "0.1250"]


def test_the_table_tells_the_seconds_of_a_pass_where_passes_were_measured() -> None:
    measured = result([row("mlp-2x100", "adam", 4.0, "eager", 1)])
    assert not {"s per pass", "time / best backprop"} & {str(column.header) for column in table(measured).columns}
    measured["config"]["samples"] = 50_000
    measured["results"][0]["steps_per_round"] = 250
    cells = {str(column.header): list(column.cells) for column in table(measured).columns}
    assert cells["s per pass"] == ["1.00 (0.90 to 1.20)"], "250 steps of 4 ms"
