"""The tables below a figure: where curves end, how runs differ, where they were made, and on how much data."""

from dataclasses import replace

import pytest
from report_cases import ADAM, DEPTH, LARGE, LATER, NASTY, ROWS, SMALL, row

from altmin.data.registry import DATASETS
from altmin.paper.report import tables
from altmin.paper.reproduce.results import Results, words


def test_curves_stand_with_their_last_point_panel_by_panel_beside_what_the_paper_states() -> None:
    columns, rows = tables.ends(SMALL, Results(ROWS))
    assert columns == ["panel", "curve", "at, in batches", "test accuracy"]
    assert rows == [
        ["mnist, mlp-1x4", "adam", "8", words([0.6, 0.8, 0.9])],
        ["mnist, mlp-1x4", NASTY, "8", words([0.5, 0.7])],
        ["HIGGS", "adam", "8", words([0.62, 0.66])],
        ["HIGGS", "the paper: AM-Adam 0.98", "8", "0.98"],
    ]


def test_what_all_runs_share_is_said_once_and_what_differs_run_by_run() -> None:
    shared = tables.common(SMALL)
    assert shared["batch_size"] == "200"
    assert shared["limit"] == "none"
    columns, rows = tables.runs(SMALL, Results(ROWS[:2]))
    assert columns == ["panel", "curve", "seeds", "method", "model", "data", "options.lr", "eval_batches"]
    assert not set(columns) & set(shared)
    assert rows[0] == ["mnist, mlp-1x4", "adam", "2 of 3", "adam", "mlp-1x4", "mnist", "0.01", "1, 2"]
    assert rows[2] == ["HIGGS", "adam", "0 of 2", "adam", "mlp-2x4", "higgs", "", "none"]
    for run, found in zip(SMALL.runs, rows, strict=True):
        settings = shared | {name: value for name, value in zip(columns[3:], found[3:], strict=True) if value}
        flat = {name: value for name, value in run.config().items() if name != "options"}
        assert set(settings) == set(flat) | {f"options.{name}" for name in run.options}, "no setting is lost"


def test_numbers_that_follow_one_another_are_written_as_a_range() -> None:
    figure = replace(SMALL, runs=[replace(ADAM, eval_batches=tuple(range(1, 51)))])
    assert tables.common(figure)["eval_batches"] == "1 to 50"
    figure = replace(SMALL, runs=[replace(ADAM, eval_batches=(1, 2, 4))])
    assert tables.common(figure)["eval_batches"] == "1, 2, 4"


def test_seeds_that_diverged_are_counted() -> None:
    rows = [row(ADAM, 0, [0.5]), row(ADAM, 1, [0.5]) | {"diverged": "the loss is not finite"}]
    assert tables.runs(SMALL, Results(rows))[1][0][2] == "2 of 3, 1 diverged"


def test_an_environment_stands_once_with_the_number_of_its_runs() -> None:
    other = ROWS[0] | {"environment": {"torch": "2.14.0", "gpu": "H200"}}
    columns, rows = tables.environments([ROWS[0], other, ROWS[1]])
    assert columns == ["torch", "gpu", "cpu", "runs"]
    assert rows == [["2.13.0", "none", "<i>fast</i>", "2"], ["2.14.0", "H200", "none", "1"]]


def test_a_partial_file_is_told_from_a_whole_one_and_from_a_run_that_asks_for_less() -> None:
    whole = DATASETS["higgs"].splits["train"]
    assert tables.extent("higgs", 800) == f"partial file: 800 of {whole:,} rows"
    assert tables.extent("higgs", whole) == "all"
    assert tables.extent("higgs", 800, limit=800) == f"the first 800 of {whole:,} rows"
    assert tables.extent("higgs", 800, limit=1000) == f"partial file: 800 of {whole:,} rows"
    assert tables.extent("higgs", whole, limit=2 * whole) == "all"
    assert tables.extent("no data set", 800) == ""


def test_data_are_listed_with_fingerprint_and_rows_and_partial_ones_named() -> None:
    mnist = DATASETS["mnist"].splits["train"]
    rows = [row(ADAM, 0, [0.5], rows=mnist), row(ADAM, 1, [0.5], rows=mnist), row(LARGE, 0, [0.5])]
    _, found = tables.samples(rows)
    assert [each[:3] for each in found] == [
        ["mnist", "0123456789abcdef", f"{mnist:,}"],
        ["higgs", "0123456789abcdef", "800"],
    ]
    assert [each[3] for each in found] == ["all", tables.extent("higgs", 800)]
    assert tables.partial(rows) == [("higgs", tables.extent("higgs", 800))]
    assert tables.samples([{"config": {}, "seed": 0}])[1] == [], "a measurement need not have data"


@pytest.mark.parametrize(("figure", "planned"), [(SMALL, 7), (LATER, 5), (DEPTH, 3)], ids=lambda each: str(each)[:20])
def test_a_complete_figure_has_so_many_rows(figure: tables.Figure, planned: int) -> None:
    assert tables.planned(figure) == planned
    twice = replace(figure, runs=[*figure.runs, replace(figure.runs[0], title="again")])
    assert tables.planned(twice) == planned, "a run that two panels share is made once"


def test_only_rows_that_the_figure_shows_count() -> None:
    strangers = [row(ADAM, 3, [0.1]), row(replace(ADAM, epochs=9), 0, [0.1])]
    assert tables.made(SMALL, Results([*strangers, *ROWS])) == ROWS
    again = replace(SMALL, runs=[*SMALL.runs, replace(ADAM, title="again")])
    assert tables.made(again, Results(ROWS)) == ROWS
