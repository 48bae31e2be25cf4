"""The site in headless Chromium, at desktop and phone width: pages open without an error, nothing is wider than the
screen, pictures are there, search finds, and the interactive page does what its buttons say."""

import json
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import chromium
import pytest
from built_site import ROOT, built, pages

pytestmark = pytest.mark.slow
WIDTHS = (1280, 390)
# A frame that is removed stops the virtual time of headless Chromium, so all of them stay.
OPENED = """
const found = [];
for (const name of %s) {
  const frame = document.createElement("iframe");
  Object.assign(frame, { src: name, width: 1280, height: 800 });
  await new Promise((done) => { frame.onload = done; document.body.append(frame); });
  const inner = frame.contentWindow, root = inner.document.documentElement;
  const bare = () => root.querySelector("article .md-typeset__table, article table:not([class])")?.closest(
    ".md-typeset__scrollwrap") === null; // the theme puts tables into boxes that scroll
  for (let i = 0; i < 100 && bare(); i++) await new Promise((done) => setTimeout(done, 50));
  const broken = [...inner.document.images].filter((each) => each.complete && !each.naturalWidth);
  const widths = [];
  for (const width of %s) {
    frame.width = width;
    await new Promise((done) => setTimeout(done, 50));
    widths.push([width, inner.innerWidth, root.scrollWidth]);
  }
  found.push({ name, widths, broken: broken.map((each) => each.src), title: inner.document.title });
}
return found;
"""
INTERACTIVE = """
const page = (id) => document.getElementById(id);
const click = (id, times = 1) => { for (let i = 0; i < times; i++) page(id).click(); };
const set = (id, value, event) => { page(id).value = value; page(id).dispatchEvent(new Event(event)); };
const cells = () => [...page("blocks").rows].map((row) => [...row.cells].map((cell) => cell.textContent));
const losses = () => [page("am-caption"), page("bp-caption")].map((each) => each.textContent.match(/loss ([^,]+)/)[1]);
const found = { start: losses(), phases: [] };
for (let i = 0; i < 4; i++) { click("phase"); found.phases.push(page("say").textContent); }
set("share", 0, "input"); click("reset"); click("step", 20);
found.same = losses(); found.limit = cells();
set("share", 7, "input"); click("reset"); click("step", 60);
found.apart = losses(); found.full = cells();
set("order", "weights-first", "change"); found.weights = cells();
found.learnt = page("am-caption").textContent;
found.tasks = [...page("task").options].map((each) => each.text);
found.said = found.tasks.map((task, i) => {
  page("task").selectedIndex = i;
  set("at", 3, "input");
  return page("along-say").textContent;
});
click("run");
await new Promise((done) => setTimeout(done, 400));
found.running = page("run").textContent; click("run"); found.paused = page("run").textContent;
return found;
"""


class Server(SimpleHTTPRequestHandler):
    """Quiet, and without the worker of the search, which reads the whole index anew for every page."""

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        if "/workers/" not in self.path:
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript")
        self.end_headers()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A copy of the site, and the address at which it is served."""
    chromium.browser()
    folder = tmp_path_factory.mktemp("served") / "site"
    shutil.copytree(built(), folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_every_page_opens_without_an_error_and_fits_the_screen(site: tuple[Path, str]) -> None:
    """Of the copies of source files, which are all alike, two."""
    folder, address = site
    names = [name for name in pages() if not name.startswith("source/")]
    names += ["source/altmin/core/step.py.html", "source/index.html"]
    (folder / "all.html").write_text("<!DOCTYPE html><html><body></body></html>")
    script = OPENED % (json.dumps(names), json.dumps(WIDTHS))
    found, console = chromium.ask(folder / "all.html", script, f"{address}/probed.html")
    assert console == []
    assert [each["name"] for each in found] == names
    assert not [each["broken"] for each in found if each["broken"]]
    for each in found:
        assert [(asked, inner) for asked, inner, _ in each["widths"]] == [(width, width) for width in WIDTHS]
        assert all(wide <= inner for _, inner, wide in each["widths"]), each
    assert all("altmin" in each["title"] for each in found)


@pytest.fixture(scope="module")
def interactive(site: tuple[Path, str]) -> tuple[dict[str, Any], list[str]]:
    folder, address = site
    return chromium.ask(folder / "interactive.html", INTERACTIVE, f"{address}/probed.html")


def test_the_buttons_of_the_interactive_page_take_steps(interactive: tuple[dict[str, Any], list[str]]) -> None:
    found, console = interactive
    assert "failed" not in found, found
    assert console == []
    assert found["start"][0] == found["start"][1]
    for words, said in zip(
        ("1. Encode", "2. The last code", "3. The first code", "Step 1 is"), found["phases"], strict=True
    ):
        assert said.startswith(words)
    assert (found["running"], found["paused"]) == ("Pause", "Run")
    assert float(found["learnt"].split("loss ")[1].split(",")[0]) < 0.6 * float(found["start"][0])


def test_with_share_0_both_networks_stay_the_same_and_with_1_they_do_not(
    interactive: tuple[dict[str, Any], list[str]],
) -> None:
    found = interactive[0]
    assert found["same"][0] == found["same"][1]
    assert [row[1:] for row in found["limit"]] == [["0", "1.000", "1.0000", "1.000"]] * 2 + [
        ["no code", "1.000", "1.0000", "1.000"]
    ]
    assert found["apart"][0] != found["apart"][1]
    assert float(found["full"][1][2]) < 0.9, "codes first: the second block's code below has done a part"
    assert float(found["weights"][1][2]) == 1, "weights first: hidden blocks are asked for everything"


def test_the_sliders_over_results_say_what_the_files_say(interactive: tuple[dict[str, Any], list[str]]) -> None:
    rows = [json.loads(line) for line in (ROOT / "benchmarks/share.jsonl").read_text().splitlines()]
    wanted = {"share": 0.1, "order": "codes-first"}
    said = dict(zip(interactive[0]["tasks"], interactive[0]["said"], strict=True))
    assert {row["task"] for row in rows} < set(said)
    for task in ("mlp-2x100", "lenet5"):
        found = {
            row["method"]: row["rows"][-1]["value"]
            for row in rows
            if row["task"] == task and row["options"] in (wanted, {})
        }
        assert said[task].startswith(f"Share 0.1: test accuracy codes-first {found['am-adam']:.4f} (")
        assert f"backprop {found['adam']:.4f}." in said[task]


def test_opened_from_a_folder_the_site_can_be_searched(site: tuple[Path, str]) -> None:
    page = site[0] / "tour.html"
    script = """
    const pause = () => new Promise((done) => setTimeout(done, 250));
    for (let i = 0; i < 40 && !document.querySelector(".md-search-result__item"); i++) await pause();
    return [...document.querySelectorAll(".md-search-result__link")].map((each) => each.getAttribute("href"));
    """
    found, console = chromium.ask(page, script, f"{page.with_name('probed.html').as_uri()}?q=checkpointing")
    assert console == []
    assert any("faq.html" in link for link in found)
