"""The page as text: complete in itself, the same each time, and text from results stays text."""

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from report_cases import DEPTH, DEPTH_ROWS, LATER, NASTY, ROWS, SMALL

from altmin.paper.report.page import counts, kind, page
from altmin.paper.report.plots import plot
from altmin.paper.reproduce.claims import judged, order
from altmin.paper.reproduce.figure import Figure
from altmin.paper.reproduce.results import Results

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
    for words in (NASTY, "<i>fast</i>", "a small <figure>"):
        assert words in small
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
