"""The table of `altmin bench` shows the numbers of the result, each under its name."""

from benched import BARS, result, row, spread

from altmin.paper.bench.table import table


def test_the_table_goes_by_net_and_mode_and_leaves_out_what_does_not_vary() -> None:
    cells = {str(column.header): list(column.cells) for column in table(BARS).columns}
    assert cells["model"] == ["mlp-2x100"] * 4 + ["lenet5:50"] * 4
    assert cells["mode"] == ["eager", "eager", "graph", "graph"] * 2
    assert cells["time / adam"][1] == "1.50 (1.35 to 1.80)"
    assert cells["ms per step"][3] == "0.800 (0.720 to 0.960)"
    assert cells["samples / s"][1] == "133,333"
    assert not {"members", "time / 1 member", "time / compiled adam", "depth"} & set(cells)
    assert [each.end_section for each in table(BARS).rows] == [False, True, False, True, False, True, False, False]


def test_the_table_has_the_columns_that_a_result_calls_for() -> None:
    rows = [
        row("mlp-2x100", "adam", 1.0, "compile", 1, ratio_to_variants={"adam:fused=true": spread(2.0)}),
        row("mlp-2x100", "adam", 1.0, "graph", 8, ratio_to_variants={"adam:fused=true": None}, size=8),
    ]
    rows[0].update(size=1, ratio_to_compiled=spread(1.0))
    cells = {str(column.header): list(column.cells) for column in table(result(rows, grow="members")).columns}
    assert cells["members"] == ["1", "8"]
    assert cells["time / adam:fused=true"] == ["2.00 (1.80 to 2.40)", ""]
    assert cells["time / compiled adam"] == ["1.00 (0.90 to 1.20)", ""]
    assert cells["ms per member"] == ["1.0000", "0.1250"]


def test_the_table_tells_the_seconds_of_a_pass_where_passes_were_measured() -> None:
    measured = result([row("mlp-2x100", "adam", 4.0, "eager", 1)])
    assert "s per pass" not in {str(column.header) for column in table(measured).columns}
    measured["config"]["samples"] = 50_000
    measured["results"][0]["steps_per_round"] = 250
    cells = {str(column.header): list(column.cells) for column in table(measured).columns}
    assert cells["s per pass"] == ["1.00 (0.90 to 1.20)"], "250 steps of 4 ms"
