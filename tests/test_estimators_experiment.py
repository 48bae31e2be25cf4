"""experiments/estimators.py: a run is a fit and a measure written out, and docs/estimators.md quotes its files."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

from altmin.sklearn import AltMinClassifier

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def experiment(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    for name in ("estimators", "estimator_data", "common"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import estimators

    return estimators


@pytest.mark.filterwarnings("ignore")
def test_a_run_measures_what_a_fit_written_out_gives(experiment: Any) -> None:
    X, X_test, y, y_test = experiment.split("iris", 3, "test")
    assert len(X_test) == 50
    by_hand = AltMinClassifier(epochs=3, random_state=3).fit(X, y).predict(X_test)
    row = experiment.run("iris", "AltMin", {"epochs": 3}, "raw", 3, "test")
    assert row["value"] == accuracy_score(y_test, by_hand)
    X, X_test, y, y_test = experiment.split("diabetes", 1, "test")
    scale, unit = StandardScaler().fit(X), y.std()
    net = MLPRegressor(max_iter=2, random_state=1).fit(scale.transform(X), (y - y.mean()) / unit)
    found = net.predict(scale.transform(X_test)) * unit + y.mean()
    row = experiment.run("diabetes", "MLP", {"max_iter": 2}, "all scaled", 1, "test")
    assert row["value"] == pytest.approx(np.sqrt(np.mean((found - y_test) ** 2)) / y_test.std())


@pytest.mark.parametrize("name", ["iris", "moons"])
def test_validation_never_sees_test_rows(experiment: Any, name: str) -> None:
    _, held, *_ = experiment.split(name, 0, "test")
    train, validation, *_ = experiment.split(name, 0, "validation")
    if name == "iris":  # rows of iris may be alike, so they are counted
        assert len(train) + len(validation) == 150 - len(held)
    else:  # generated anew
        assert not (held[:, None] == np.concatenate([train, validation])[None]).all(2).any()


def test_verdicts_are_mean_differences_and_mean_ratios(experiment: Any) -> None:
    rows = []
    for i, name in enumerate(experiment.CLASSIFICATION):
        for of, value in (("AltMin", 0.9 + 0.01 * i), ("MLP", 0.92)):
            rows.append({"data": name, "estimator": of, "preparation": "raw", "value": value})
    for i, name in enumerate(experiment.REGRESSION):
        for of, value in (("AltMin", 2.0 if i < 3 else 0.5), ("MLP", 1.0)):
            rows.append({"data": name, "estimator": of, "preparation": "raw", "value": value})
    assert experiment.verdict(rows, "classification", "raw") == (pytest.approx(0.005), 4)
    assert experiment.verdict(rows, "regression", "raw") == (pytest.approx(1.0), 3)


def test_the_page_has_the_tables_of_the_files(experiment: Any) -> None:
    page = experiment.DOCUMENT.read_text()
    assert experiment.report_table() in page
    assert experiment.choice_table() in page


def test_a_small_report_is_written_with_its_environment(
    experiment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [("iris", of, {}, "raw", 0, "test") for of in ("AltMin", "MLP")]
    monkeypatch.setattr(experiment, "tasks", lambda what, seeds: few)
    monkeypatch.setattr(experiment, "run", lambda *task: {"task": task})
    monkeypatch.setattr(experiment, "report_table", lambda path: "")
    assert experiment.main(["report", "--out", str(tmp_path / "a.jsonl")]) == 0
    first, *rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert "torch" in json.dumps(first["environment"])
    assert [row["task"][1] for row in rows] == ["AltMin", "MLP"]
