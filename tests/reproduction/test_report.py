"""The report: a page that stands alone, with the numbers of the files in its tables and plots."""

import colorsys
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import pytest
from report_cases import ADAM, DEEP, DEPTH, DEPTH_ROWS, LARGE, LATER, NASTY, ROWS, SGD, SMALL, row

from altmin.cli.plot import COLOURS
from altmin.data.registry import DATASETS
from reproduction.claims import judged, order
from reproduction.commands.verify import summary
from reproduction.figure import Figure, Mark
from reproduction.report import tables
from reproduction.report.page import page
from reproduction.report.plots import DASHES, SHAPES, plot
from reproduction.results import Results, words

FIGURES = {"depth": DEPTH, "later": LATER, "small": SMALL}

RESULTS = {"depth": Results(DEPTH_ROWS), "later": Results([]), "small": Results(ROWS)}


def verdicts(figures: dict[str, Figure] = FIGURES) -> list[dict[str, Any]]:
    rows = [
        judged(claim, RESULTS[name], f"python -m reproduction figure {name}")
        for name in figures
        for claim in figures[name].claims
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
    for each in ("it <i>fails</i>", "a <s>proof</s>", "a half of it <b>differs</b>", "0.6 < 0.7 & <u>so on</u>"):
        assert each in read.sections["claims"]
    assert not set(read.tags) & {"i", "u", "s", "figure"}
    assert len(re.findall("<b>", text.partition("<script")[0])) == 1, "the page's own"


def test_a_claim_is_a_line_that_opens_to_all_its_statements(read: Reader) -> None:
    claims = " ".join(read.sections["claims"].split())
    assert summary(verdicts()) in claims
    assert "Of 5 claims: 1 reproduced, 1 exceeded, 1 differs, 1 refuted, 1 not run." in claims
    places = [claims.index(f"{each['claim']} {each['text']} {each['verdict']}") for each in verdicts()]
    assert places == sorted(places)
    for claim, start, end in zip(verdicts(), places, [*places[1:], len(claims)], strict=True):
        said = claims[start:end]
        assert f"The paper: {claim['paper']}" in said
        for each in claim["statements"]:
            spread = "" if each["spread"] is None else f" spread {each['spread']:.3g}"
            ours, because = (f" {word} {each[key]}" if each[key] else "" for word, key in NAMES)
            assert f"{each['text']} {each['verdict']} criterion {each['criterion']}{ours}{spread}{because}" in said


NAMES = (("found", "ours"), ("because", "because"))


def test_the_script_is_small_and_the_plots_are_as_they_are(text: str, read: Reader) -> None:
    data, own = read.scripts
    assert len(text) < 60_000
    assert own.strip() == resources.files("reproduction.report").joinpath("page.js").read_text().strip()
    assert json.loads(data) == {n: plot(FIGURES[n], RESULTS[n]) for n in ("small", "depth")}
    assert ", " not in re.sub('"[^"]*"', "", data), "no room between numbers"


def test_nothing_is_loaded_from_elsewhere(read: Reader) -> None:
    assert not set(read.tags) & {"link", "img", "iframe", "object", "embed", "base"}
    assert not [value for name, value in read.attributes if name in ("src", "srcset", "data", "action")]
    assert all(str(value).startswith("#") for name, value in read.attributes if name == "href")
    policy = [str(value) for name, value in read.attributes if name == "content" and "default-src" in str(value)]
    assert policy[0].startswith("default-src 'none'")


def test_a_figure_that_was_not_run_is_listed_with_its_command(read: Reader, text: str) -> None:
    later = " ".join(read.sections["later"].split())
    assert "not run: python -m reproduction figure later" in later
    assert "about 2 min on one H200" in later
    assert 'id="plot-later"' not in text
    assert "Environment" not in later


def test_a_figure_half_run_says_how_far_it_is() -> None:
    text = page({"small": SMALL}, {"small": Results(ROWS[:2])}, [])
    assert "2 of 7 runs made" in text
    assert 'id="plot-small"' in text


def test_a_figure_says_how_it_is_made_again_and_on_how_much_data(read: Reader) -> None:
    small, depth = (" ".join(read.sections[name].split()) for name in ("small", "depth"))
    assert "python -m reproduction figure small --device cuda, about 1.5 min on one H200" in small
    assert "python -m reproduction search small" in small
    assert "python -m reproduction search" not in depth
    assert "Trained on a part of higgs only: partial file: 800 of 10,000,000 rows." in small
    assert "Stars, against batches, are what the paper states: AM-Adam 0.98 (HIGGS)." in small


def themes() -> dict[str, dict[str, tuple[float, float, float]]]:
    """The colours of the style sheet by name, of the light and the dark page."""
    style = resources.files("reproduction.report").joinpath("page.css").read_text()
    light, dark = (
        re.findall(r"--([\w-]+): #(\w{6})", block) for block in re.findall(r":root {(.*?)}", style, re.DOTALL)
    )
    read = {name: {key: rgb(value) for key, value in block} for name, block in (("light", light), ("dark", dark))}
    assert set(read["light"]) == set(read["dark"])
    return read


def rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[n : n + 2], 16) / 255 for n in (0, 2, 4))
    return red, green, blue


def contrast(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """As WCAG 2 defines it."""

    def light(colour: tuple[float, float, float]) -> float:
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


VERDICT_COLOURS = {"reproduced": 150, "exceeded": 210, "differs": 38, "refuted": 277}
"""Hues: green, blue, amber, purple."""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_has_contrast_and_verdicts_have_their_colours_none_of_them_red(theme: str) -> None:
    colours = themes()[theme]
    for name in (*VERDICT_COLOURS, "not-run", "text", "soft", "link"):
        assert contrast(colours[name], colours["back"]) >= 4.5, name
        assert contrast(colours[name], colours["panel"]) >= 4.5, name
    for name, degrees in VERDICT_COLOURS.items():
        assert 360 * colorsys.rgb_to_hls(*colours[name])[0] == pytest.approx(degrees, abs=15), name
    assert colorsys.rgb_to_hls(*colours["not-run"])[2] < 0.15, "grey"
    for name, colour in colours.items():
        hue, _, saturation = colorsys.rgb_to_hls(*colour)
        assert saturation < 0.2 or 20 < 360 * hue < 340, f"{name} is red"


def points(figure: Figure, rows: list[dict[str, Any]], axis: str) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
    """What the page's data say: place, mean, smallest, largest and seeds at each point, by panel and name."""
    data = plot(figure, Results(rows))
    number, found = data["axes"].index(axis), {}
    for curve in data["curves"]:
        for series in curve["series"]:
            if series["at"][number] is not None:
                n = len(series["mean"])
                seeds = series["seeds"] if isinstance(series["seeds"], list) else [series["seeds"]] * n
                low, high = (series.get(name, series["mean"]) for name in ("low", "high"))
                key = data["panels"][curve["panel"]]["title"], data["looks"][curve["look"]]["name"]
                where = data["places"][series["at"][number]]
                assert key not in found, "a curve has one series along an axis"
                found[key] = list(zip(where, series["mean"], low, high, seeds, strict=True))
    return found


def test_points_are_mean_smallest_and_largest_over_seeds_with_five_digits() -> None:
    found = points(SMALL, ROWS, "batches")
    # adam: after batches 1 and 2, and after epochs 1 and 2 of four batches each
    assert found["mnist, mlp-1x4", "adam"] == [
        (1, 0.2, 0.1, 0.3, 3),
        (2, 0.2, 0.1, 0.3, 3),
        (4, 0.6, 0.5, 0.7, 3),
        (8, 0.76667, 0.6, 0.9, 3),
    ]
    assert found["mnist, mlp-1x4", NASTY] == [(4, 0.35, 0.3, 0.4, 2), (8, 0.6, 0.5, 0.7, 2)]
    assert found["HIGGS", "adam"] == [(4, 0.62, 0.61, 0.63, 2), (8, 0.64, 0.62, 0.66, 2)]


def test_every_axis_has_its_own_places() -> None:
    adam = {axis: points(SMALL, ROWS, axis)["mnist, mlp-1x4", "adam"] for axis in ("epochs", "seconds")}
    assert [x for x, *_ in adam["epochs"]] == [0.25, 0.5, 1, 2]
    assert [x for x, *_ in adam["seconds"]] == [1.5, 3], "seeds take 1, 1.5 and 2 seconds an epoch"
    assert [each[1:] for each in adam["seconds"]] == [each[1:] for each in adam["epochs"][2:]]


def test_what_axes_and_curves_share_is_written_once() -> None:
    data = plot(SMALL, Results(ROWS))
    assert data["places"] == [[1, 2, 4, 8], [4, 8], [0.25, 0.5, 1, 2], [1, 2], [1.5, 3], [1.25, 2.5]]
    at = [[series["at"] for series in curve["series"]] for curve in data["curves"]]
    assert at == [[[0, 2, None], [None, None, 4]], [[1, 3, 5]], [[1, 3, 5]]], "adam's seconds are known after epochs"


def test_an_axis_without_points_is_left_out() -> None:
    figure = replace(SMALL, axes=("layers", *SMALL.axes))
    data = plot(figure, Results(ROWS))
    assert (data["axes"], data["marks"]) == (["batches", "epochs", "seconds"], []), "marks belong to the first axis"
    assert plot(LATER, Results([]))["axes"] == []


def test_a_method_looks_the_same_in_all_panels_and_as_in_the_picture() -> None:
    data = plot(SMALL, Results(ROWS))
    assert [(each["panel"], each["look"]) for each in data["curves"]] == [(0, 0), (0, 1), (1, 0)]
    assert [(each["name"], each["colour"]) for each in data["looks"]] == [("adam", COLOURS[0]), (NASTY, COLOURS[1])]
    alone = plot(SMALL, Results(ROWS[3:5]))
    assert [(each["name"], each["colour"]) for each in alone["looks"]] == [(NASTY, COLOURS[1])]
    many = [replace(DEEP[0], label=str(n)) for n in range(28)]
    looks = plot(replace(DEPTH, runs=many), Results(DEPTH_ROWS))["looks"]
    assert len({(each["colour"], each["dash"]) for each in looks}) == 28
    assert {each["dash"] for each in looks} == set(DASHES.values())
    script = resources.files("reproduction.report").joinpath("page.js").read_text()
    assert {each["marker"] for each in looks} == set(SHAPES.values())
    assert set(SHAPES.values()) == set(re.findall(r'^    (\w+): "M', script, re.MULTILINE)) - {"star"}


def test_what_the_paper_states_is_a_mark_in_its_panel() -> None:
    data = plot(SMALL, Results(ROWS))
    assert data["marks"] == [{"panel": 1, "x": 8, "y": 0.98, "text": "paper: AM-Adam 0.98"}]
    assert data["stated"] == "the paper"
    other = replace(SMALL, marks=[Mark("HIGGS", 8, 0.9, "K-FAC 0.9", "published")])
    assert plot(other, Results(ROWS))["stated"] == "published values"
    assert "Stars, against batches, are published values: K-FAC 0.9 (HIGGS)." in page(
        {"small": other}, {"small": Results(ROWS)}, []
    )
    assert plot(SMALL, Results(ROWS[:5]))["marks"] == [], "a panel without measurements is left out"
    assert "Stars" not in page({"small": SMALL}, {"small": Results(ROWS[:5])}, [])


def test_panels_have_the_scales_of_their_figure_or_of_their_runs() -> None:
    (deep,) = plot(DEPTH, Results(DEPTH_ROWS))["panels"]
    assert deep == {"title": "deep", "measure": "accuracy at the end", "x": "log", "y": "logit"}
    small = plot(replace(SMALL, log="y", bottom=0.25), Results(ROWS))
    assert [(each["title"], each["x"], each["y"]) for each in small["panels"]] == [
        ("mnist, mlp-1x4", "linear", "log"),
        ("HIGGS", "linear", "log"),
    ]
    assert small["bottom"] == 0.25


def test_what_is_not_finite_is_a_gap_that_json_can_hold() -> None:
    rows = [row(ADAM, 0, [0.5, 0.8]), row(ADAM, 1, [0.7, float("nan")]), row(ADAM, 2, [0.3])]
    assert points(SMALL, rows, "epochs")["mnist, mlp-1x4", "adam"] == [(1, 0.5, 0.3, 0.7, 3), (2, None, None, None, 2)]
    json.dumps(plot(SMALL, Results(rows)), allow_nan=False)


def test_one_seed_has_no_band() -> None:
    (curve,) = plot(SMALL, Results([row(SGD, 0, [0.5, 1 / 3])]))["curves"]
    assert all(set(series) == {"at", "mean", "seeds"} for series in curve["series"])
    assert curve["series"][0]["mean"] == [0.5, 0.33333]


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
    assert columns == ["panel", "curve", "seeds", "settings"]
    own = "method adam; model mlp-1x4; data mnist; options.lr 0.01; eval_batches 1, 2"
    assert rows[0] == ["mnist, mlp-1x4", "adam", "2 of 3", own]
    assert rows[2] == ["HIGGS", "adam", "0 of 2", "method adam; model mlp-2x4; data higgs; eval_batches none"]
    for run, found in zip(SMALL.runs, rows, strict=True):
        settings = {each.split(" ")[0] for each in found[3].split("; ")}
        flat = {name: value for name, value in run.config().items() if name != "options"}
        assert not settings & set(shared)
        assert settings | set(shared) == set(flat) | {f"options.{name}" for name in run.options}, "no setting is lost"


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


@pytest.mark.parametrize(("figure", "planned"), [(SMALL, 7), (LATER, 5), (DEPTH, 4)], ids=lambda each: str(each)[:20])
def test_a_complete_figure_has_so_many_rows(figure: tables.Figure, planned: int) -> None:
    assert tables.planned(figure) == planned
    twice = replace(figure, runs=[*figure.runs, replace(figure.runs[0], title="again")])
    assert tables.planned(twice) == planned, "a run that two panels share is made once"


def test_only_rows_that_the_figure_shows_count() -> None:
    strangers = [row(ADAM, 3, [0.1]), row(replace(ADAM, epochs=9), 0, [0.1])]
    assert tables.made(SMALL, Results([*strangers, *ROWS])) == ROWS
    again = replace(SMALL, runs=[*SMALL.runs, replace(ADAM, title="again")])
    assert tables.made(again, Results(ROWS)) == ROWS
