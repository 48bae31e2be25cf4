"""The page in headless Chromium: it is drawn without an error or a request, says what the results say, and its buttons
and its legend do what they should."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import chromium
import pytest
from report_cases import ADAM, NASTY, ROWS, SMALL, folders

from altmin.cli import run
from altmin.cli.verify import verdicts
from altmin.paper.reproduce.results import Results

pytestmark = pytest.mark.slow
PROBE = """
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const text = (root, selector) => root.querySelector(selector).textContent;
const small = document.getElementById("plot-small");
const lines = () => small.data.filter((each) => each.mode === "lines+markers").map(
  (each) => ({ name: each.name, place: each.xaxis, x: each.x, visible: each.visible ?? true }));
const found = { axes: {}, title: document.title };
found.requests = performance.getEntriesByType("resource").map((each) => each.name);
found.drawn = Object.fromEntries(all(".drawing").map((div) => [div.id, {
  svg: all(".main-svg", div).length, panels: all(".cartesianlayer .subplot", div).length,
  curves: all(".scatterlayer .trace path.js-line", div).length }]));
found.claims = all(".claims tbody tr").map((tr) => Object.fromEntries(
  ["id", "text", "paper", "ours", "spread", "verdict"].map((name) => [name, text(tr, "." + name)])));
found.legend = all("#plot-small .legendtext").map((each) => each.textContent);
const first = small.data.findIndex((each) => each.mode === "lines+markers");
Plotly.Fx.hover(small, [{ curveNumber: first, pointNumber: 3 }]);
await pause(500);
found.hover = text(small, ".hoverlayer");
for (const button of all("button[data-figure=small]")) {
  button.click();
  await pause(200);
  found.axes[button.textContent] = { lines: lines(), title: text(small, ".xtitle"),
    pressed: all("button[aria-pressed=true]").map((each) => each.textContent) };
}
const toggle = small.querySelector(".legendtoggle");
for (const kind of ["mousedown", "mouseup"]) toggle.dispatchEvent(new MouseEvent(kind, { bubbles: true }));
await pause(1000);
found.hidden = lines();
document.querySelector("button[data-figure=small]").click();
await pause(200);
found.still_hidden = lines();
const look = () => ({ open: all("details").map((each) => each.open),
  widths: all(".drawing").map((each) => each.layout.width) });
found.screen = look();
dispatchEvent(new Event("beforeprint"));
found.printed = look();
dispatchEvent(new Event("afterprint"));
found.after = look();
return found;
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    figures, results = folders(root)
    where = ["--figures", str(figures), "--results", str(results), "--out", str(root / "report.html")]
    chromium.browser()
    assert run(["report", *where]) == 0
    return root / "report.html"


@pytest.fixture(scope="module")
def opened(page: Path) -> tuple[Mapping[str, Any], list[str]]:
    return chromium.ask(page, PROBE)


def test_nothing_goes_wrong_and_nothing_is_requested(opened: tuple[Mapping[str, Any], list[str]]) -> None:
    found, console = opened
    assert "failed" not in found, found
    assert console == []
    assert found["requests"] == []


def test_every_figure_with_results_is_drawn_with_all_its_panels_and_curves(
    opened: tuple[Mapping[str, Any], list[str]],
) -> None:
    drawn = opened[0]["drawn"]
    assert set(drawn) == {"plot-small", "plot-depth"}
    assert all(each["svg"] > 0 for each in drawn.values())
    assert {name: each["panels"] for name, each in drawn.items()} == {"plot-small": 2, "plot-depth": 1}
    assert drawn["plot-small"]["curves"] >= 3
    assert opened[0]["legend"] == ["adam", NASTY, "the paper"], "a name is shown as it is, once for all panels"


def test_the_table_says_what_the_result_files_say(opened: tuple[Mapping[str, Any], list[str]], page: Path) -> None:
    expected = verdicts(page.parent / "figures", page.parent / "results")
    shown = opened[0]["claims"]
    assert [row["id"] for row in shown] == ["C1", "C2", "C10"]
    for row, truth in zip(shown, expected, strict=True):
        assert row["id"] == truth["claim"]
        for name in ("text", "paper", "ours", "verdict"):
            assert row[name] == truth[name]
        spread = float(row["spread"]) if row["spread"] else None
        assert spread == (None if truth["spread"] is None else pytest.approx(truth["spread"], rel=5e-3))
    assert shown[1]["ours"].startswith("0.767"), "(0.6 + 0.8 + 0.9) / 3"


def test_hovering_tells_where_the_mean_the_extremes_and_the_seeds(
    opened: tuple[Mapping[str, Any], list[str]],
) -> None:
    for words in ("8 batches: 0.7667", "0.6 to 0.9, seeds: 3", "adam"):
        assert words in opened[0]["hover"]


def test_each_button_draws_the_curves_against_its_axis(opened: tuple[Mapping[str, Any], list[str]]) -> None:
    axes = opened[0]["axes"]
    assert list(axes) == ["batches", "epochs", "seconds"]
    for axis, shown in axes.items():
        assert shown["title"] == axis
        assert shown["pressed"] == [axis]
        curves = SMALL.curves(Results(ROWS), axis)
        assert [line["x"] for line in shown["lines"]] == [[x for x, _ in curve.points] for curve in curves]
    assert len({json.dumps([line["x"] for line in shown["lines"]]) for shown in axes.values()}) == 3


def test_a_click_in_the_legend_hides_a_method_in_all_panels_and_on_all_axes(
    opened: tuple[Mapping[str, Any], list[str]],
) -> None:
    for lines in (opened[0]["hidden"], opened[0]["still_hidden"]):
        adam = [line["visible"] for line in lines if line["name"] == ADAM.name]
        assert adam == ["legendonly"] * 2
        assert [line["visible"] for line in lines if line["name"] != ADAM.name] == [True]


def test_printed_the_figures_fit_the_paper_and_the_details_are_open(
    opened: tuple[Mapping[str, Any], list[str]],
) -> None:
    screen, printed, after = (opened[0][name] for name in ("screen", "printed", "after"))
    assert not any(screen["open"])
    assert all(printed["open"])
    assert max(printed["widths"]) <= 688, "A4 less margins of 14 mm, at 96 pixels an inch"
    assert min(screen["widths"]) > 1000
    assert after == screen


def test_on_a_phone_nothing_is_wider_than_the_screen(page: Path) -> None:
    script = """
    const inner = document.getElementById("frame").contentWindow;
    const root = inner.document.documentElement;
    return [inner.innerWidth, root.scrollWidth, inner.document.getElementById("plot-small").layout];
    """
    (inner, scroll, layout), console = chromium.ask(chromium.framed(page, 390), script)
    assert console == []
    assert inner == 390
    assert scroll <= inner
    assert layout["width"] <= inner
    assert (layout["grid"]["columns"], layout["grid"]["rows"]) == (1, 2), "panels stand below one another"
