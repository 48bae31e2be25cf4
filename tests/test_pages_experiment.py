"""experiments/pages.py: docs/choose.md, docs/faq.md and docs/measured.json hold what the result files say, and no
other measured number."""

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("docs/choose.md", "docs/faq.md")
NAMES = ("pages", "default_table", "default_runs", "default_tasks", "default_data")


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    import pages

    return pages


def between(text: str, name: str) -> str:
    return text.split(f"<!-- {name}:begin -->\n")[1].split(f"<!-- {name}:end -->")[0]


def cells(table: str, first: str) -> list[str]:
    """Of a table the row that begins with these words."""
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in line.strip("| ").split("|")]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_tables_of_a_page_are_those_of_the_files(pages: Any, document: str) -> None:
    text = (ROOT / document).read_text()
    assert set(re.findall(r"<!-- (\w+):begin -->", text)) == set(pages.PARTS[document])
    for name, part in pages.PARTS[document].items():
        assert between(text, name).strip() == part().strip(), f"run `python experiments/pages.py` ({name})"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_measured_number_stands_outside_of_the_tables(document: str) -> None:
    text = re.sub(r"<!-- (\w+):begin -->.*?<!-- \1:end -->", "", (ROOT / document).read_text(), flags=re.DOTALL)
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)
    settings = {"0.1", "0.9"}  # of the share and of forget
    assert not set(re.findall(r"\d+\.\d+", text)) - settings


def test_the_results_of_the_interactive_page_are_those_of_the_files(pages: Any) -> None:
    assert json.loads((ROOT / "docs/measured.json").read_text()) == pages.measured(), (
        "run `python experiments/pages.py`"
    )


def test_a_mean_is_over_all_seeds_and_geometric_for_errors(pages: Any) -> None:
    rows = [json.loads(line) for line in (ROOT / "benchmarks/defaults.jsonl").read_text().splitlines()]
    for task, mean in (("lenet5", statistics.fmean), ("sine", statistics.geometric_mean)):
        values = [row["rows"][-1]["value"] for row in rows if (row["task"], row["method"]) == (task, "adam")]
        assert len(values) == 3
        assert pages.of_task(rows, task, "adam") == pytest.approx(mean(values))


@pytest.mark.parametrize(
    "document, first, page, row",
    [
        ("docs/defaults.md", "lenet5 | 0.001 | 500", "needs", "images, convolutions"),
        ("docs/defaults.md", "sine | 0.003 | 4,000", "needs", "regression, smooth"),
        ("docs/defaults.md", "transformer | codes-first", "shares", "transformer"),
        ("docs/continual.md", "streaming LDA", "memory", "streaming LDA, no net"),
        ("docs/networks.md", "residual-32x128 | 128 | 2 threads", "faster", "residual-32x128"),
    ],
)
def test_the_same_number_stands_in_the_page_that_explains_it(
    pages: Any, document: str, first: str, page: str, row: str
) -> None:
    """Those pages were written by other code, which the numbers must have passed through unchanged."""
    theirs = next(line for line in (ROOT / document).read_text().splitlines() if line.startswith(f"| {first} |"))
    parts = {name: part for each in pages.PARTS.values() for name, part in each.items()}
    ours = [cell for cell in cells(parts[page](), row) if re.fullmatch(r"[\d.e-]+", cell)]
    assert ours
    assert ours[0] in theirs


def test_running_it_changes_nothing_that_is_up_to_date(pages: Any, tmp_path: Path, monkeypatch: Any) -> None:
    before = {}
    for name in (*DOCUMENTS, "docs/measured.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
        before[name] = (ROOT / name).read_text()
    monkeypatch.setattr(pages, "HERE", tmp_path)
    monkeypatch.setattr(pages, "MEASURED", tmp_path / "docs/measured.json")
    assert pages.main() == 0
    assert {name: (tmp_path / name).read_text() for name in before} == before
