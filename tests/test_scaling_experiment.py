"""experiments/scaling.py: docs/scaling.md holds what benchmarks/scaling says, and contestants do the same work."""

import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "benchmarks/scaling"
PARTS = [part for part in ("time", "bytes", "paper") if (FOLDER / f"{part}.jsonl").exists()]


def rows(part: str, folder: Path = FOLDER) -> list[Any]:
    return [json.loads(line) for line in (folder / f"{part}.jsonl").read_text().splitlines()]


@pytest.fixture
def experiment(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    for name in ("scaling", "scaling_ranks", "scaling_paper", "scaling_table"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return import_module("scaling")


@pytest.mark.parametrize("part", PARTS)
def test_the_page_holds_the_table_of_the_file(part: str, experiment: Any):
    page = (ROOT / "docs/scaling.md").read_text()
    (there,) = re.findall(rf"<!-- scaling-{part}:begin -->\n(.*?)<!-- scaling-{part}:end -->", page, re.DOTALL)
    text = sys.modules["scaling_table"].text(part, FOLDER)
    assert there == text, "run `python experiments/scaling.py table`"


@pytest.mark.skipif("bytes" not in PARTS, reason="bytes have not been measured")
def test_ranks_count_what_the_model_says_and_the_wire_carries_little_more():
    """Every message has headers of gloo and TCP, and its receipt, at both ends."""
    for row in rows("bytes"):
        assert row["bytes"] == row["model_bytes"], row
        assert row.get("messages") == row.get("model_messages"), row
        assert row["on_the_wire"] >= row["bytes"], row


def test_the_paper_is_what_the_model_says_now(experiment: Any):
    assert json.loads(json.dumps(sys.modules["scaling_paper"].rows())) == rows("paper")


def test_with_one_gpu_nothing_is_sent_and_all_of_it_is_work():
    for row in rows("paper"):
        if row["gpus"] == 1:
            assert row["seconds"] == row["parts"]["compute"]
            assert row["efficiency"] == 1


def test_a_run_in_small_compares_gradients_and_times_every_contestant(experiment: Any, tmp_path: Path):
    """The gradients of every way to share the work are those of one process, before anything is timed."""
    assert experiment.main(["time", "--quick", "--out", str(tmp_path)]) == 0
    found = {row["what"]: row for row in rows("time", tmp_path)}
    assert set(found) == set(sys.modules["scaling_table"].WORDS) - {"am-mem"}
    for name, row in found.items():
        assert (row["difference"] is None) == (row["ranks"] == 1), name
        if row["ranks"] == 1:
            assert row["over_one"]["median"] == 1
        else:
            assert row["difference"] < 1e-5, name


def test_gradients_that_differ_are_not_timed(experiment: Any, monkeypatch: pytest.MonkeyPatch):
    found = [{"differences": {"backprop 1F1B": 0.5}, "seconds": {}}]
    monkeypatch.setattr(experiment, "launch", lambda *_: found)
    with pytest.raises(RuntimeError, match=r"those of one process: \{'backprop 1F1B': 0.5\}"):
        experiment.times(experiment.SMALL, 1, 1)
