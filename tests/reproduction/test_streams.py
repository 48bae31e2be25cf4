"""Models on streams: every sample is predicted before it is learnt."""

from statistics import mean
from typing import Any

import numpy as np
import pytest
import torch

from reproduction import Setting
from reproduction.figure import load
from reproduction.streams import MODELS, STREAMS, Progressive, measurement, samples

pytest_plugins = ["figure_cases"]

FIGURE = load()["streams"]
pytest.importorskip("river")


class Last:
    """Predicts the target that it learnt last, None before it has learnt any."""

    last: Any = None

    def predict_one(self, x: Any) -> Any:
        return self.last

    def learn_one(self, x: Any, y: Any) -> None:
        self.last = y


def patched(monkeypatch: pytest.MonkeyPatch, targets: list[Any]) -> None:
    """Give every stream these targets, and let every model predict the last one."""
    monkeypatch.setattr(measurement, "samples", lambda name, seed, limit: [({}, y) for y in targets][:limit])
    monkeypatch.setattr(measurement, "create", lambda name, regression, seed: Last())


def test_every_sample_is_predicted_before_it_is_learnt(
    monkeypatch: pytest.MonkeyPatch, setting: Setting, quiet: Any
) -> None:
    patched(monkeypatch, [k >= 80 for k in range(100)])
    rows = Progressive("phishing", "Adam").make([0, 2], setting, quiet)
    assert [row["seed"] for row in rows] == [0, 2]
    for row in rows:  # learnt first, every prediction would be right
        assert (row["samples"], row["value"]) == (100, 0.98)
        assert row["curve"] == [0.5 if k in (0, 40) else 1.0 for k in range(50)]


def test_the_error_of_a_regression_is_absolute_and_none_counts_as_zero(
    monkeypatch: pytest.MonkeyPatch, setting: Setting, quiet: Any
) -> None:
    targets = [5.0, 3.0, 4.0, -1.0] * 26
    patched(monkeypatch, targets)
    (row,) = Progressive("friedman", "Adam").make([0], setting, quiet)
    errors = [abs(y - before) for before, y in zip([0.0, *targets], targets, strict=False)]
    assert row["value"] == pytest.approx(mean(errors), abs=1e-5)
    assert row["curve"] == [mean(errors[k : k + 2]) for k in range(0, 100, 2)]  # without the last four of 104


def test_a_net_on_a_stream_scores_what_a_loop_written_out_does(setting: Setting, quiet: Any) -> None:
    from altmin.stream import OnlineClassifier

    net, right = OnlineClassifier(members=1, seed=1), []
    for x, y in samples("sea", 1, 60):
        right.append(net.predict_one(x) == y)
        net.learn_one(x, y)
    (row,) = Progressive("sea", "Gauss-Newton (one net)", limit=60).make([1], setting, quiet)
    assert row["value"] == round(mean(map(float, right)), 5)
    assert row["curve"] == [float(each) for each in right[:50]]


def test_the_files_curves_end_with_the_values_of_the_tables() -> None:
    results = FIGURE.results
    ends = {(curve.panel, curve.name): curve.points[-1] for curve in FIGURE.curves(results, "all samples so far")}
    assert len(ends) == len(FIGURE.runs)
    for each in FIGURE.runs:
        values = [row["value"] for row in results.of(each)]
        assert ends[each.panel, each.name] == (STREAMS[each.stream].length, values)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_learns_as_a_classifier_a_regressor_or_both(name: str, setting: Setting, quiet: Any) -> None:
    served = [stream for stream in ("phishing", "trump-approval") if MODELS[name].serves(STREAMS[stream].regression)]
    assert served
    for stream in served:
        (row,) = Progressive(stream, name, limit=12).make([0], setting, quiet)
        assert row["samples"] == 12


@pytest.mark.parametrize("classifies", [True, False])
@pytest.mark.parametrize("method", ["am-adam", "am-mem-fitted", "adam"])
def test_an_input_that_joins_late_is_learnt_as_if_it_had_been_zero_from_the_start(
    method: str, classifies: bool
) -> None:
    from reproduction.streams.methods import MethodClassifier, MethodRegressor

    options = {"damping": 0.0} if method == "am-mem-fitted" else {}  # or it depends on the number of inputs
    made = (MethodClassifier if classifies else MethodRegressor)(method, options, (5,))
    random = np.random.default_rng(0)
    rows, targets = random.normal(size=(30, 1, 4)), random.integers(2, size=30)
    rows[:15, :, 3] = 0.0
    late, early = (made._made(n, 1 + classifies, 0) for n in (3, 4))
    with torch.no_grad():
        for p, q in zip(early.module.parameters(), late.module.parameters(), strict=True):
            (p[:, :3] if p.shape != q.shape else p).copy_(q)
    joined = early.module[1].weight[:, 3:].detach().clone()
    for i, (x, y) in enumerate(zip(rows, targets, strict=True)):
        if i == 15:
            late.add_inputs(1, joined)
        late.learn(x[:, : late.inputs], int(y))
        early.learn(x, int(y))
    np.testing.assert_allclose(late.predict(rows[:, 0]), early.predict(rows[:, 0]), rtol=1e-8)
