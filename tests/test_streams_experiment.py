"""The page on streams is held to its file of results; the experiment itself runs on a short stream."""

import importlib
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("river")
ROOT = Path(__file__).resolve().parent.parent
OURS = ("AM-mem", "AM-Adam", "Adam")


@pytest.fixture
def experiments(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    names = ("stream_data", "stream_models", "stream_table", "streams")
    for name in (*names, "common"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return {name: importlib.import_module(name) for name in names}


def rows(name: str = "streams") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ROOT / f"benchmarks/{name}.jsonl").read_text().splitlines()]


def means(regression: bool, experiments: dict[str, Any]) -> dict[str, dict[str, float]]:
    """By stream and model of ours."""
    table = experiments["stream_table"]
    return {
        name: {model: statistics.mean(table.values(rows(), name, model)) for model in OURS}
        for name, stream in experiments["stream_data"].STREAMS.items()
        if stream.regression == regression
    }


def test_the_pages_tables_are_those_of_the_file(experiments: dict[str, Any]) -> None:
    page, table = (ROOT / "docs/streams.md").read_text(), experiments["stream_table"]
    for text in (table.results(rows(), False), table.results(rows(), True), table.costs(rows())):
        assert text in page


def test_the_file_has_three_seeds_of_every_stream_and_model_of_ours(experiments: dict[str, Any]) -> None:
    found = {(row["stream"], row["model"], row["seed"]) for row in rows() if "value" in row}
    assert {(s, m, k) for s in experiments["stream_data"].STREAMS for m in OURS for k in range(3)} <= found
    assert any("environment" in row for row in rows())


def test_what_the_page_says_of_the_methods_holds_in_the_file(experiments: dict[str, Any]) -> None:
    found = means(False, experiments)
    assert all(each["AM-Adam"] > each["Adam"] - 0.01 for each in found.values())
    assert sum(each["AM-Adam"] >= each["Adam"] - 0.001 for each in found.values()) >= 3
    assert all(each["AM-mem"] > each["Adam"] + 0.005 for name, each in found.items() if name != "phishing")
    assert abs(found["phishing"]["AM-mem"] - found["phishing"]["Adam"]) < 0.002
    assert all(each["AM-mem"] < each["Adam"] for each in means(True, experiments).values())
    times = {row["cost"]: row["median"] for row in rows() if "cost" in row}
    assert times["AM-Adam"] < 1.2
    assert times["Adam, fused kernel"] < 1 < times["AM-Adam"] < times["AM-mem"]
    forest = {row["stream"]: [] for row in rows() if row.get("model") == "adaptive forest"}  # type: dict[str, list[float]]
    for row in rows():
        if row.get("model") == "adaptive forest":
            forest[row["stream"]].append(row["value"])
    ahead = {name for name, values in forest.items() if statistics.mean(values) > found[name]["AM-mem"]}
    assert ahead == {"bananas", "phishing"}


def test_the_defaults_are_the_best_that_the_search_has_found() -> None:
    from altmin.stream.settings import DEFAULTS

    for method in ("am-adam", "adam", "am-mem"):
        best = max((row for row in rows("stream_search") if row["method"] == method), key=lambda row: row["mean"])
        chosen = DEFAULTS[method]
        assert chosen["lr"] == best["options"]["lr"]
        if method == "am-mem":
            assert chosen["rate"] == pytest.approx(best["options"]["rate"], rel=0.2)
            assert 1 - chosen["forget"] == pytest.approx(1 - best["options"]["forget"], rel=0.2)


class LastLabel:
    """Predicts the label that it learnt last."""

    last = 1

    def predict_one(self, x: Any) -> int:
        return self.last

    def learn_one(self, x: Any, y: int) -> None:
        self.last = y


def test_every_sample_is_predicted_before_it_is_learnt(
    experiments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = experiments["streams"]
    monkeypatch.setattr(streams, "samples", lambda name, seed: [({}, int(k >= 80)) for k in range(100)])
    monkeypatch.setattr(streams, "create", lambda name, regression, seed: LastLabel())
    row = streams.progressive("phishing", "any", 0)
    assert row["value"] == 0.98  # wrong where the label changes, and in the beginning
    assert row["curve"] == [0.5 if k in (0, 40) else 1.0 for k in range(50)]
