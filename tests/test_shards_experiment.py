"""experiments/shards.py: docs/data.md holds what benchmarks/shards.jsonl says, and the claim about memory is so."""

import json
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROWS = [json.loads(line) for line in (ROOT / "benchmarks/shards.jsonl").read_text().splitlines()]


@pytest.fixture
def experiment(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    yield import_module("shards")
    sys.modules.pop("shards")


def test_the_page_holds_the_table_of_the_file(experiment):
    page = (ROOT / "docs/data.md").read_text()
    (there,) = re.findall(r"<!-- shards:begin -->\n(.*?)<!-- shards:end -->", page, re.DOTALL)
    assert there == experiment.text(), "run `python experiments/shards.py --table`"


def test_memory_stays_below_what_two_windows_can_map():
    """Pieces of up to 2 MB around each of 2 x 64 blocks of samples and as many of targets, besides the blocks."""
    most = 2 * 64 * (2 * 2 * 2**20 + 4096 * (28 * 4 + 8))
    assert {row["rows"] for row in ROWS} == {1_100_000, 11_000_000}
    for row in ROWS:
        assert row["peak_resident"] - row["resident_before"] < most < 0.46 * 1_320_036_708
    streamed = {
        (row["what"], row["rows"]): row["peak_resident"] for row in ROWS if row["what"] in ("write", "statistics")
    }
    for what in ("write", "statistics"):
        assert streamed[what, 11_000_000] < 1.05 * streamed[what, 1_100_000]


def test_the_cold_epoch_was_read_from_the_disc():
    for row in ROWS:
        if row["what"] == "cold":
            assert row["read_from_disc"] >= 0.9 * row["bytes"]


def test_every_row_was_seen(experiment, tmp_path):
    pytest.importorskip("pyarrow")
    row = experiment.measured("write", tmp_path / "s", 3000)
    assert (row["rows_seen"], experiment.measured("rank", tmp_path / "s", 3000)["rows_seen"]) == (3000, 750)
    assert experiment.epoch(tmp_path / "s") == 3000
