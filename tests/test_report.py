"""The report: a page that stands alone, with the numbers of the files in its tables and plots."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from report_cases import ADAM, DEEP, DEPTH, DEPTH_ROWS, LARGE, LATER, NASTY, ROWS, SMALL, row

from altmin.data.registry import DATASETS
from altmin.paper.plot import COLOURS
from altmin.paper.report import tables
from altmin.paper.report.page import counts, kind, page
from altmin.paper.report.plots import DASHES, SYMBOLS, plot
from altmin.paper.reproduce.claims import judged, order
from altmin.paper.reproduce.figure import Figure
from altmin.paper.reproduce.results import Results, words
from altmin.paper.reproduce.run import Run

FIGURES = {"depth": DEPTH, "later": LATER, "small": SMALL}

RESULTS = {"depth": Results(DEPTH_ROWS), "later": Results([]), "small": Results(ROWS)}


def verdicts(figures: dict[str, Figure] = FIGURES) -> list[dict[str, Any]]:
    rows = [
        judged(claim, RESULTS[name], f"altmin reproduce {name}") for name in figures for claim in figures[name].claims
    ]
    return sorted(rows, key=lambda row: order(str(row["claim"])))


class Reader(HTMLParser):
    """The text of each section by its id, all tags, and their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.sections: dict[str, str] = {}
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[str] = []
        self.inside, self.id = "", ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.inside = tag
        if tag == "section":
            self.id = str(dict(attrs)["id"])

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts.append(data)
        else:
            self.sections[self.id] = self.sections.get(self.id, "") + data


@pytest.fixture(scope="module")
def text() -> str:
    return page(FIGURES, RESULTS, verdicts())


@pytest.fixture(scope="module")
def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


def test_claims_come_first_then_figures_in_the_order_of_their_claims(read: Reader) -> None:
    assert [name for name in read.sections if name] == ["claims", "later", "small", "depth"]


def test_the_same_results_give_the_same_page(text: str) -> None:
    assert page(dict(reversed(FIGURES.items())), RESULTS, verdicts()) == text


def test_text_from_results_and_figures_stays_text(text: str, read: Reader) -> None:
    small = read.sections["small"]
    for each in (NASTY, "<i>fast</i>", "a small <figure>"):
        assert each in small
    assert "it <i>fails</i>" in read.sections["claims"]
    assert "0.6 < 0.7 & <u>so on</u>" in read.sections["claims"]
    assert not set(read.tags) & {"i", "u", "figure"}
    assert len(re.findall("<b>", text.partition("<script")[0])) == 1, "the page's own"


def test_the_scripts_hold_plotly_once_and_the_plots_as_they_are(read: Reader) -> None:
    from plotly.offline import get_plotlyjs

    data, library, own = ("".join(part) for part in (read.scripts[:1], read.scripts[1:-1], read.scripts[-1:]))
    assert library.strip() == get_plotlyjs().strip()
    assert "Plotly.react" in own
    # As it was written by hand, through JSON: tuples are lists there.
    assert json.loads(data) == json.loads(json.dumps({n: plot(FIGURES[n], RESULTS[n]) for n in ("small", "depth")}))


def test_nothing_is_loaded_from_elsewhere(read: Reader) -> None:
    assert not set(read.tags) & {"link", "img", "iframe", "object", "embed", "base"}
    assert not [value for name, value in read.attributes if name in ("src", "srcset", "data", "action")]
    assert all(str(value).startswith("#") for name, value in read.attributes if name == "href")
    policy = [str(value) for name, value in read.attributes if name == "content" and "default-src" in str(value)]
    assert policy[0].startswith("default-src 'none'")


def test_a_figure_that_was_not_run_is_listed_with_its_command(read: Reader, text: str) -> None:
    later = " ".join(read.sections["later"].split())
    assert "not run: altmin reproduce later" in later
    assert "about 2 min on one H200" in later
    assert 'id="plot-later"' not in text
    assert "Environment" not in later


def test_a_figure_half_run_says_how_far_it_is() -> None:
    text = page({"small": SMALL}, {"small": Results(ROWS[:2])}, [])
    assert "2 of 7 runs made" in text
    assert 'id="plot-small"' in text


def test_a_figure_says_how_it_is_made_again_and_on_how_much_data(read: Reader) -> None:
    small, depth = (" ".join(read.sections[name].split()) for name in ("small", "depth"))
    assert "altmin reproduce small --device cuda, about 1.5 min on one H200" in small
    assert "altmin search small" in small
    assert "altmin search" not in depth
    assert "Trained on a part of higgs only: partial file: 800 of 10,000,000 rows." in small
    assert "Stars, against batches, are what the paper states: AM-Adam 0.98 (HIGGS)." in small


def test_verdicts_are_told_apart_and_counted() -> None:
    assert [kind(row["verdict"]) for row in verdicts()] == ["missing", "holds", "fails"]
    assert counts(verdicts()) == "Of 3 claims 1 hold, 1 do not hold, 1 not run."


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
