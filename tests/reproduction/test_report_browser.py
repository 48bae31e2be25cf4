"""The page in headless Chromium: it is drawn without an error or a request, says what the results say, and its buttons,
its legend, a mouse, a finger and the keyboard do what they should."""

import math
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import chromium
import pytest
from report_cases import DEPTH, DEPTH_ROWS, NASTY, ROWS, SMALL, folders

from reproduction.__main__ import run
from reproduction.commands.verify import summary, verdicts
from reproduction.figure import Figure
from reproduction.results import Results

pytestmark = pytest.mark.slow
Found = Mapping[str, Any]
HELPERS = """
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const text = (root, selector) => root.querySelector(selector)?.textContent.trim() ?? null;
const path = (each, left, top) => (each.getAttribute("d").match(/-?[\\d.]+ -?[\\d.]+/g) ?? []).map((pair) => {
  const [x, y] = pair.split(" ").map(Number);
  return [x + left, y + top];
});
const ticks = (panel, letter) => all(`.tick.${letter}`, panel).map((each) => {
  const [, x, y] = each.previousSibling.getAttribute("d").match(/M([\\d.]+) ([\\d.]+)/);
  return [each.textContent, Number(letter === "x" ? x : y)];
});
const panels = (name, root = document) => all(`#plot-${name} .panel:not([hidden])`, root).map((panel) => {
  const inner = panel.querySelector(".canvas svg svg");
  const [left, top] = ["x", "y"].map((each) => Number(inner.getAttribute(each)));
  return {
    title: text(panel, "h3"), names: all(".name", panel).map((each) => each.textContent),
    left, right: left + Number(inner.getAttribute("width")), top, bottom: top + Number(inner.getAttribute("height")),
    x: ticks(panel, "x"), y: ticks(panel, "y"),
    bands: all(".band path", panel).map((each) => path(each, left, top)),
    curves: all(".curve", panel).map((each) => ({
      name: each.dataset.name, points: path(each.querySelector(".line"), left, top) })),
    stars: all(".star .marker", panel).map((each) => {
      const [x, y] = each.getAttribute("transform").match(/-?[\\d.]+/g).map(Number);
      return [x + left, y + top];
    }),
  };
});
const overlaps = (root = document) => {  // pairs of texts of a panel, and of claims, that lie over one another
  const found = [];
  for (const group of [...all(".canvas > svg", root).map((svg) => all("text", svg)),
    ...all(".claim summary", root).map((line) => [...line.children])]) {
    const boxes = group.map((each) => [each.textContent, each.getBoundingClientRect()]);
    boxes.forEach(([one, a], n) => boxes.slice(n + 1).forEach(([other, b]) => {
      if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) found.push([one, other]);
    }));
  }
  return found;
};
"""
PROBE = (
    HELPERS
    + """
const found = { axes: {}, hover: {}, zoom: {} };
const legend = all("#plot-small .legend button");
found.requests = performance.getEntriesByType("resource").map((each) => each.name);
found.titles = all(".drawing").map((div) => [div.id, panels(div.id.slice(5)).map((each) => each.title)]);
found.depth = panels("depth");
found.counts = text(document, "#counts");
found.claims = all(".claim").map((claim) => ({
  claim: text(claim, ".id"), text: text(claim, "summary .text"), verdict: text(claim, "summary .verdict"),
  links: all(".links a", claim).map((each) => each.getAttribute("href")), paper: text(claim, ".paper"),
  statements: all("li", claim).map((li) => Object.fromEntries(
    ["text", "criterion", "verdict", "ours", "spread", "because"].map((name) => [name, text(li, "." + name)]))),
}));
found.legend = legend.map((each) => each.textContent);
found.overlaps = overlaps();

const canvas = document.querySelector("#plot-small .canvas"), tip = canvas.querySelector(".tip");
const pointer = (kind, target, box, [x, y], pointerType = "mouse") => target.dispatchEvent(
  new PointerEvent(kind, { clientX: box.left + x, clientY: box.top + y, pointerType, bubbles: true }));
const point = (kind, place, target = canvas, type = "mouse") =>
  pointer(kind, target, canvas.getBoundingClientRect(), place, type);
const said = () => tip.hidden ? null : all("div", tip).map((each) => each.textContent);
const inside = () => {
  const [a, b] = [tip, canvas].map((each) => each.getBoundingClientRect());
  return a.left >= b.left - 1 && a.right <= b.right + 1;
};
const [start] = panels("small"), adam = start.curves[0].points;
const far = [start.right - 5, start.bottom - 5];
point("pointermove", [adam[3][0] - 6, adam[3][1] + 5]);
found.hover.mouse = said();
found.hover.inside = inside();
point("pointermove", far);
found.hover.far = said();
point("pointerdown", adam[0], canvas, "touch");
found.hover.finger = said();
point("pointerleave", adam[0]);
found.hover.left = said();
const press = (key) => {
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  return said();
};
found.hover.keys = ["ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft", "Escape"].map(press);
const star = all("#plot-small .canvas")[1];
pointer("pointermove", star, star.getBoundingClientRect(), panels("small")[1].stars[0]);
found.hover.star = text(star, ".tip");
const deep = document.querySelector("#plot-depth .canvas");
found.hover.deep = [1, 2].map(() => {
  deep.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
  return all(".tip div", deep).map((each) => each.textContent);
});

found.zoom.before = panels("small")[0];
const from = [start.left + 50, start.top + 40], to = [start.left + 250, start.top + 160];
for (const kind of ["touch", "mouse"]) {
  point("pointerdown", from, canvas, kind);
  point("pointermove", to, document, kind);
  point("pointerup", to, document, kind);
  found.zoom[kind] = panels("small")[0];
}
canvas.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
found.zoom.after = panels("small")[0];

for (const button of all("button[data-figure=small]")) {
  button.click();
  found.axes[button.textContent] = { panels: panels("small"),
    pressed: all(".axes button[aria-pressed=true]").map((each) => each.textContent) };
}
const names = () => panels("small").map(
  (panel) => [...panel.curves.map((each) => each.name), ...panel.stars.map(() => "*")]);
const double = (each) => {
  each.click();
  each.click();
  each.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
  return names();
};
found.shown = { seconds: names() };
legend[0].click();
found.shown.hidden = names();
found.shown.pressed = legend.map((each) => each.getAttribute("aria-pressed"));
all("button[data-figure=small]")[0].click();
found.shown.still = names();
legend[0].click();
found.shown.again = names();
found.shown.only = double(legend[1]);
found.shown.all = double(legend[1]);
const look = () => ({ open: all("details").map((each) => each.open),
  widths: all(".panels").map((each) => Math.max(...all("svg", each).map((svg) => svg.getBoundingClientRect().right))
    - each.getBoundingClientRect().left) });
found.screen = look();
dispatchEvent(new Event("beforeprint"));
found.printed = look();
dispatchEvent(new Event("afterprint"));
found.after = look();
return found;
"""
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    figures, results = folders(root)
    where = ["--figures", str(figures), "--results", str(results), "--out", str(root / "report.html")]
    chromium.browser()
    assert run(["report", *where]) == 0
    return root / "report.html"


@pytest.fixture(scope="module")
def opened(page: Path) -> tuple[Found, list[str]]:
    return chromium.ask(page, PROBE)


@pytest.fixture(scope="module")
def found(opened: tuple[Found, list[str]]) -> Found:
    assert "failed" not in opened[0], opened[0]
    return opened[0]


def test_nothing_goes_wrong_and_nothing_is_requested(opened: tuple[Found, list[str]]) -> None:
    found, console = opened
    assert "failed" not in found, found
    assert console == []
    assert found["requests"] == []


def test_claims_say_what_verify_says_of_the_result_files(found: Found, page: Path) -> None:
    expected = verdicts(page.parent / "figures", page.parent / "results")
    assert found["counts"] == summary(expected)
    for row, truth in zip(found["claims"], expected, strict=True):
        assert row["links"] == ["#later" if truth["claim"] == "C1" else "#small"]
        assert {name: row[name] for name in ("claim", "text", "verdict", "paper")} == {
            name: truth[name] for name in ("claim", "text", "verdict", "paper")
        }
        for shown, said in zip(row["statements"], truth["statements"], strict=True):
            spread = None if said["spread"] is None else f"{said['spread']:.3g}"
            assert shown == {**said, "spread": spread, "ours": said["ours"] or None, "because": said["because"] or None}
    assert found["claims"][1]["statements"][0]["ours"].startswith("0.767"), "(0.6 + 0.8 + 0.9) / 3"


def number(text: str) -> float:
    """The number that a tick says."""
    unit = {"k": 1e3, "M": 1e6}.get(text[-1:], 1.0)
    return float(re.sub("[kM]$", "", text)) * unit


SCALES: dict[str, Callable[[float], float]] = {
    "linear": lambda v: v,
    "log": math.log,
    "logit": lambda v: math.log(v / (1 - v)),
}


def pixel(ticks: list[tuple[str, float]], scale: str) -> Callable[[float], float]:
    """Where an axis with these ticks has a value, which the first and the last tick decide; all others agree."""
    to = SCALES[scale]
    (low, start), (high, end) = ((to(number(text)), place) for text, place in (ticks[0], ticks[-1]))
    found = lambda v: start + (to(v) - low) / (high - low) * (end - start)  # noqa: E731
    for text, place in ticks:
        assert found(number(text)) == pytest.approx(place, abs=0.6), f"the tick {text} is at its place"
    return found


def check_drawn(panels: list[dict[str, Any]], figure: Figure, rows: list[dict[str, Any]], axis: str) -> None:
    """Every mean, smallest and largest value is where the ticks of its panel say."""
    expected = figure.curves(Results(rows), axis)
    drawn = [(panel, curve) for panel in panels for curve in panel["curves"]]
    assert [(panel["title"], curve["name"]) for panel, curve in drawn] == [(each.panel, each.name) for each in expected]
    bands = [band for panel in panels for band in panel["bands"]]
    several = [curve for curve in expected if len(curve.points[0][1]) > 1]
    for (panel, curve), truth in zip(drawn, expected, strict=True):
        x, y = (pixel(panel[letter], figure.scale(panel["title"], letter)) for letter in "xy")
        assert panel["names"] == [axis, figure.measure]
        places = [(x(at), y(mean(values))) for at, values in truth.points]
        assert curve["points"] == [pytest.approx(place, abs=0.7) for place in places]
        if truth in several:
            there = [(x(at), y(max(values))) for at, values in truth.points]
            back = [(x(at), y(min(values))) for at, values in reversed(truth.points)]
            assert bands[several.index(truth)] == [pytest.approx(place, abs=0.7) for place in there + back]
    assert len(bands) == len(several)


@pytest.mark.parametrize("axis", ["batches", "epochs", "seconds"])
def test_each_button_draws_lines_and_bands_against_its_axis_where_the_results_are(found: Found, axis: str) -> None:
    assert list(found["axes"]) == ["batches", "epochs", "seconds"]
    assert found["axes"][axis]["pressed"] == [axis]
    check_drawn(found["axes"][axis]["panels"], SMALL, ROWS, axis)


def test_logarithmic_and_logit_scales_put_points_where_their_ticks_say(found: Found) -> None:
    check_drawn(found["depth"], DEPTH, DEPTH_ROWS, "layers")
    assert [text for text, _ in found["depth"][0]["x"]] == ["2", "8", "64"], "a few places are the ticks"
    assert {"0.1", "0.2"} <= {text for text, _ in found["depth"][0]["y"]}


def test_a_star_is_where_the_paper_states_on_the_first_axis_alone(found: Found) -> None:
    small, higgs = found["axes"]["batches"]["panels"]
    x, y = (pixel(higgs[letter], "linear") for letter in "xy")
    assert higgs["stars"] == [pytest.approx((x(8), y(0.98)), abs=0.7)]
    assert small["stars"] == []
    assert not any(panel["stars"] for axis in ("epochs", "seconds") for panel in found["axes"][axis]["panels"])
    assert found["hover"]["star"] == "paper: AM-Adam 0.98"


def test_figures_with_results_are_drawn_and_names_are_shown_as_they_are(found: Found) -> None:
    assert found["titles"] == [["plot-small", ["mnist, mlp-1x4", "HIGGS"]], ["plot-depth", ["deep"]]]
    assert found["legend"] == ["adam", NASTY, "the paper"], "once for all panels"


def test_a_mouse_a_finger_and_keys_tell_the_place_the_mean_the_extremes_and_the_seeds(found: Found) -> None:
    hover = found["hover"]
    first, second = (["adam", f"{n} batches: 0.2", "0.1 to 0.3, seeds: 3"] for n in (1, 2))
    assert hover["mouse"] == ["adam", "8 batches: 0.76667", "0.6 to 0.9, seeds: 3"]
    assert hover["inside"], "what is said stays in its panel"
    assert hover["far"] is None
    assert hover["finger"] == first
    assert hover["left"] is None
    assert hover["keys"] == [first, second, first, [NASTY, "8 batches: 0.6", "0.5 to 0.7, seeds: 2"], None]
    assert hover["deep"][0] == ["adam", "2 layers: 0.2", "0.1 to 0.3, seeds: 2"]
    assert hover["deep"][1] == ["adam", "8 layers: 0.2", "seeds: 1"]


def test_dragging_a_mouse_looks_closer_a_double_click_goes_back_and_a_finger_scrolls(found: Found) -> None:
    before, closer = (found["zoom"][name] for name in ("before", "mouse"))
    assert found["zoom"]["touch"] == before
    assert found["zoom"]["after"] == before
    old, new = ({letter: pixel(panel[letter], "linear") for letter in "xy"} for panel in (before, closer))
    # What lay under the frame's left upper and right lower corner is now at the panel's.
    for letter, old_places, new_places in (
        ("x", (before["left"] + 50, before["left"] + 250), (closer["left"], closer["right"])),
        ("y", (before["top"] + 40, before["top"] + 160), (closer["top"], closer["bottom"])),
    ):
        unit = old[letter](1) - old[letter](0)
        values = [(place - old[letter](0)) / unit for place in old_places]
        assert [new[letter](value) for value in values] == [pytest.approx(place, abs=2) for place in new_places]


def test_the_legend_hides_and_shows_a_method_in_all_panels_and_on_all_axes(found: Found) -> None:
    shown = found["shown"]
    assert shown["seconds"] == [["adam", NASTY], ["adam"]]
    assert shown["hidden"] == [[NASTY], []]
    assert shown["pressed"] == ["false", "true", "true"]
    assert shown["still"] == [[NASTY], ["*"]]
    assert shown["again"] == shown["all"] == [["adam", NASTY], ["adam", "*"]]
    assert shown["only"] == [[NASTY], []]


def test_printed_the_figures_fit_the_paper_and_the_details_are_open(found: Found) -> None:
    screen, printed, after = (found[name] for name in ("screen", "printed", "after"))
    assert not any(screen["open"])
    assert all(printed["open"])
    assert max(printed["widths"]) <= 688, "A4 less margins of 14 mm, at 96 pixels an inch"
    assert min(printed["widths"]) > 600
    assert screen["widths"][0] > 1000
    assert after == screen


def test_texts_do_not_lie_over_one_another(found: Found) -> None:
    assert found["overlaps"] == []


def test_on_a_phone_nothing_is_wider_than_the_screen_and_panels_stand_below_one_another(page: Path) -> None:
    script = (
        HELPERS
        + """
    const inner = document.getElementById("frame").contentWindow, root = inner.document;
    all("details", root).forEach((each) => { each.open = true; });
    const edges = all(".claim summary > *, .claim dd, .canvas > svg, .legend button", root);
    return { width: inner.innerWidth, scroll: root.documentElement.scrollWidth, overlaps: overlaps(root),
      tables: all(".scroll", root).map((each) => [each.scrollWidth, each.clientWidth]),
      edge: Math.max(...edges.map((each) => each.getBoundingClientRect().right)),
      boxes: all("#plot-small .panel", root).map((each) => each.getBoundingClientRect().toJSON()) };
    """
    )
    found, console = chromium.ask(chromium.framed(page, 390), script)
    assert console == []
    assert found["width"] == 390
    assert found["scroll"] <= 390
    assert found["edge"] <= 390
    assert found["overlaps"] == []
    assert any(inside > shown for inside, shown in found["tables"]), "wide tables scroll in their own box"
    assert all(
        above["bottom"] <= below["top"] and above["left"] == below["left"] for above, below in pairwise(found["boxes"])
    )
    assert min(box["width"] for box in found["boxes"]) > 300


@pytest.mark.parametrize("width", [390, 1240])
def test_the_project_s_own_page_fits_and_can_be_read_on_every_axis(tmp_path: Path, width: int) -> None:
    chromium.browser()
    assert run(["report", "--out", str(tmp_path / "report.html")]) == 0
    script = (
        HELPERS
        + """
    const inner = document.getElementById("frame").contentWindow, root = inner.document, found = {};
    for (let n = 0; n < 3; n++) {
      all(`button[data-axis="${n}"]`, root).forEach((each) => each.click());
      const few = (panel) => Math.min(ticks(panel, "x").length, ticks(panel, "y").length) < 2;
      found[n] = { overlaps: overlaps(root), scroll: root.documentElement.scrollWidth,
        few: all(".panel:not([hidden])", root).filter(few).map((each) => each.textContent) };
    }
    return found;
    """
    )
    found, console = chromium.ask(chromium.framed(tmp_path / "report.html", width), script)
    assert console == []
    for axis in found.values():
        assert axis["overlaps"] == []
        assert axis["few"] == [], "an axis has two numbers or more"
        assert axis["scroll"] <= width
