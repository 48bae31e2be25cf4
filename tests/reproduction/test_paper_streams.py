"""The figure `streams`: a model predicts every sample of a stream before it learns it, and the file of results has all
runs."""

import json
import sys
from statistics import mean
from typing import Any

import pytest
import torch

from reproduction.__main__ import run
from reproduction.figure import load, make
from reproduction.folders import FIGURES, RESULTS
from reproduction.results import Setting
from reproduction.results import Results
from reproduction.streams import MODELS, STREAMS, Progressive, create, measurement, progressive, samples

SETTING = Setting(torch.device("cpu"))
FIGURE = load(FIGURES)["streams"]


class Last:
    """Predicts the target that it learnt last, None before it has learnt any."""

    def __init__(self) -> None:
        self.last: Any = None

    def predict_one(self, x: Any) -> Any:
        return self.last

    def learn_one(self, x: Any, y: Any) -> None:
        self.last = y


def patched(monkeypatch: pytest.MonkeyPatch, targets: list[Any]) -> None:
    """Every stream has these targets, and every model predicts the last one."""
    monkeypatch.setattr(measurement, "samples", lambda name, seed, limit: [({}, y) for y in targets][:limit])
    monkeypatch.setattr(measurement, "create", lambda name, regression, seed: Last())


def test_every_sample_is_predicted_before_it_is_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    patched(monkeypatch, [k >= 80 for k in range(100)])
    rows = Progressive("phishing", "Adam").make([0, 2], SETTING, lambda *_: None)
    assert [row["seed"] for row in rows] == [0, 2]
    for row in rows:  # learnt first, every prediction would be right
        assert (row["samples"], row["value"]) == (100, 0.98)
        assert row["curve"] == [0.5 if k in (0, 40) else 1.0 for k in range(50)]


def test_the_error_of_a_regression_is_absolute_and_none_counts_as_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = [5.0, 3.0, 4.0, -1.0] * 26
    patched(monkeypatch, targets)
    (row,) = Progressive("friedman", "Adam").make([0], SETTING, lambda *_: None)
    errors = [abs(y - before) for before, y in zip([0.0, *targets], targets, strict=False)]
    assert row["value"] == pytest.approx(mean(errors), abs=1e-5)
    assert row["curve"] == [mean(errors[k : k + 2]) for k in range(0, 100, 2)]  # without the last four of 104
    assert row["samples"] == 104


def test_a_net_on_a_stream_scores_what_a_loop_written_out_does() -> None:
    pytest.importorskip("river")
    from altmin.stream import OnlineClassifier

    net, right = OnlineClassifier(members=1, seed=1), []
    for x, y in samples("sea", 1, 60):
        right.append(net.predict_one(x) == y)
        net.learn_one(x, y)
    (row,) = Progressive("sea", "Gauss-Newton (one net)", limit=60).make([1], SETTING, lambda *_: None)
    assert row["value"] == round(mean(map(float, right)), 5)
    assert row["curve"] == [float(each) for each in right[:50]]
    assert 0.5 < row["value"] < 1


def test_fewer_samples_than_parts_are_a_part_each() -> None:
    assert progressive(Last(), [({}, y) for y in (1, 1, 2)], regression=False)["curve"] == [0.0, 1.0, 0.0]


def test_progress_goes_on_over_all_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    patched(monkeypatch, [0] * 120)
    told: list[tuple[int, int]] = []
    Progressive("phishing", "Adam").make([0, 1], SETTING, lambda done, total, text: told.append((done, total)))
    assert told == [(50, 240), (100, 240), (120, 240), (170, 240), (220, 240), (240, 240)]


ROW = {"samples": 15, "value": 0.5, "curve": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]}


def test_a_point_is_the_mean_of_the_last_five_parts_where_they_end() -> None:
    found = Progressive("sea", "Adam").points(ROW, "samples")
    assert [x for x, _ in found] == [2, 4, 6, 8, 10, 12, 14]
    assert [y for _, y in found] == pytest.approx([0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5])


def test_over_all_samples_so_far_a_curve_ends_with_the_value_of_the_tables() -> None:
    found = Progressive("sea", "linear", shown=False).points(ROW, "all samples so far")
    assert [x for x, _ in found] == [2, 4, 6, 8, 10, 12, 14, 15]
    assert [y for _, y in found] == pytest.approx([0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5])


def test_only_models_of_the_picture_have_points_in_it_and_there_are_no_other_axes() -> None:
    assert Progressive("sea", "linear", shown=False).points(ROW, "samples") == []
    with pytest.raises(ValueError, match="drawn against 'samples' or 'all samples so far', given 'epochs'"):
        Progressive("sea", "linear").points(ROW, "epochs")


def test_unknown_streams_and_models_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown stream 'banana'; did you mean 'bananas'"):
        Progressive("banana", "Adam")
    with pytest.raises(ValueError, match="unknown model 'Adm'; did you mean 'Adam'"):
        Progressive("bananas", "Adm")
    with pytest.raises(ValueError, match="unknown model 'Adm'"):
        create("Adm", False, 0)
    with pytest.raises(ValueError, match="there is no regressor 'naive Bayes'"):
        create("naive Bayes", True, 0)


def test_a_preview_has_one_seed_and_the_first_samples() -> None:
    small = Progressive("bananas", "Adam").reduced()
    assert (small.seeds, small.limit, small.reduced().limit) == (1, 300, 300)
    assert (small.config()["samples"], Progressive("airline", "Adam").reduced().config()["samples"]) == (300, 144)
    assert Progressive("bananas", "Adam", limit=20).reduced().limit == 20


def test_a_stream_and_a_model_are_selected_by_their_words() -> None:
    def chosen(text: str) -> list[tuple[str, str]]:
        return [(each.panel, each.name) for each in FIGURE.only(text).runs]

    assert chosen("sea/Gauss-Newton") == chosen("sea/gauss-newton") == [("sea", "Gauss-Newton")]
    assert chosen("airline/gauss-newton-one-net,sp500/adam") == [
        ("sp500", "Adam"),
        ("airline", "Gauss-Newton (one net)"),
    ]
    assert len(chosen("adaptive-rules")) == sum(stream.regression for stream in STREAMS.values())


def test_panels_say_what_is_measured() -> None:
    assert {panel: FIGURE.measured(panel) for panel in ("sea", "airline")} == {
        "sea": "accuracy",
        "airline": "mean absolute error",
    }


def test_every_run_of_the_figure_is_another_one_and_the_file_has_them_all_and_no_more() -> None:
    results = Results.read(RESULTS / "streams.jsonl")
    configs = [json.dumps(each.config()) for each in FIGURE.runs]
    assert len(set(configs)) == len(configs)
    assert not [each for each in FIGURE.runs if results.missing(each)]
    assert len(results.rows) == sum(each.seeds for each in FIGURE.runs)
    for each in FIGURE.runs:
        for row in results.of(each):
            assert (row["samples"], len(row["curve"])) == (STREAMS[each.stream].length, 50)
    single = {each.name for each in FIGURE.runs if each.seeds == 1}
    assert single == {name for name, model in MODELS.items() if model.kind == "ensemble"}


def test_the_picture_shows_four_models_in_every_panel_and_the_report_all() -> None:
    results = Results.read(RESULTS / "streams.jsonl")
    shown = [(curve.panel, curve.name) for curve in FIGURE.curves(results, "samples")]
    assert shown == [(s, m) for s in STREAMS for m in ("Gauss-Newton", "AM-mem", "Adam", "adaptive forest")]
    ends = {(curve.panel, curve.name): curve.points[-1] for curve in FIGURE.curves(results, "all samples so far")}
    assert len(ends) == len(FIGURE.runs)
    for each in FIGURE.runs:
        rows = results.of(each)
        assert ends[each.panel, each.name] == (STREAMS[each.stream].length, [row["value"] for row in rows])


def test_without_river_the_figure_is_told_and_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "river"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "river", None)
    figure = load(FIGURES)["streams"].only("sea/adam")
    why = 'a run on a stream needs river, which is not installed: pip install ".[stream]"'
    assert figure.runs[0].lacking(SETTING) == why
    assert make(figure, Results([]), SETTING, lambda *_: None) == [f"sea, Adam: {why}"]
    assert run(["figure"]) == 0
    assert "streams" in capsys.readouterr().out
    with pytest.raises(ModuleNotFoundError, match="a run on a stream needs river"):
        samples("sea", 0)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_has_as_many_samples_as_it_says_and_begins_with_the_same(name: str) -> None:
    pytest.importorskip("river")
    given = samples(name, 0)
    assert len(given) == STREAMS[name].length
    assert samples(name, 0, 7) == given[:7]
    assert {type(x) for x, _ in given} == {dict}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_learns_as_a_classifier_a_regressor_or_both(name: str) -> None:
    pytest.importorskip("river")
    assert MODELS[name].serves(False) or MODELS[name].serves(True)
    for stream in ("phishing", "trump-approval"):
        if MODELS[name].serves(STREAMS[stream].regression):
            assert Progressive(stream, name).lacking(SETTING) == ""
            (row,) = Progressive(stream, name, limit=12).make([0], SETTING, lambda *_: None)
            assert (row["samples"], len(row["curve"])) == (12, 12)
