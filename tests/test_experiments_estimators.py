"""The experiments on estimators: the page holds what the files of results say, and runs measure what they say."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

import altmin

sys.path.append(str(Path(__file__).resolve().parents[1] / "experiments"))
estimators, probabilities = (importlib.import_module(name) for name in ("estimators", "estimator_probabilities"))


def test_the_page_has_the_tables_of_the_files() -> None:
    for text in (estimators.report_table(), estimators.choice_table(), probabilities.report_table()):
        assert text in estimators.DOCUMENT.read_text()


@pytest.mark.filterwarnings("ignore")
def test_a_run_of_estimators_measures_what_a_fit_written_out_gives() -> None:
    X, X_test, y, y_test = estimators.split("iris", 3, "test")
    by_hand = altmin.sklearn.AltMinClassifier(epochs=3, random_state=3).fit(X, y).predict(X_test)
    row = estimators.run("iris", "AltMin", {"epochs": 3}, "raw", 3, "test")
    assert row["value"] == np.mean(y_test == by_hand)
    X, X_test, y, y_test = estimators.split("diabetes", 1, "test")
    scale, unit = StandardScaler().fit(X), y.std()
    net = MLPRegressor(max_iter=2, random_state=1)
    found = net.fit(scale.transform(X), (y - y.mean()) / unit).predict(scale.transform(X_test)) * unit + y.mean()
    row = estimators.run("diabetes", "MLP", {"max_iter": 2}, "all scaled", 1, "test")
    assert row["value"] == pytest.approx(np.sqrt(np.mean((found - y_test) ** 2)) / y_test.std())


def test_trees_have_a_model_for_each_target() -> None:
    X, X_test, y, y_test = estimators.split("linnerud", 2, "test")
    each = [HistGradientBoostingRegressor(random_state=2).fit(X, y[:, k]).predict(X_test) for k in range(3)]
    errors = [((found - y_test[:, k]) / y_test[:, k].std()) ** 2 for k, found in enumerate(each)]
    assert estimators.run("linnerud", "trees", {}, "raw", 2, "test")["value"] == pytest.approx(np.sqrt(np.mean(errors)))


def test_what_the_page_says_of_trees_holds_in_the_file() -> None:
    def better(task: str, sign: int) -> set[str]:
        _, *of = estimators.read(estimators.REPORT)
        mean = {
            name: [estimators.mean(of, data=name, estimator=each) for each in ("AltMin", "trees")]
            for name in estimators.DATA[task]
        }
        return {name for name, (ours, theirs) in mean.items() if sign * ours > sign * theirs}

    assert len(better("classification", 1)) == 3
    assert better("regression", -1) == {"friedman 1", "friedman 2", "friedman 3"}


def test_what_the_page_says_of_probabilities_holds_in_the_file() -> None:
    _, *rows = probabilities.read(probabilities.REPORT)

    def mean(measure: str, group: str, name: str, way: str = "") -> float:
        chosen = [row for row in rows if (row["estimator"], row["way"]) == (name, way)]
        return float(np.mean([row[measure] for row in chosen if row["data"] in probabilities.GROUPS[group]]))

    six, wrong = probabilities.GROUPS
    for name in ("AltMin", "AltMin, am-mem"):
        assert mean("log_loss", six, name, "temperature") < mean("log_loss", six, name)
        assert mean("accuracy", six, name, "early stopping") < mean("accuracy", six, name)
        assert mean("accuracy", wrong, name, "early stopping") > mean("accuracy", wrong, name)
    for way in ("temperature", "early stopping"):
        assert mean("ece", wrong, "AltMin", way) < mean("ece", wrong, "AltMin") / 2
    for name in ("AltMin", "MLP, scaled", "gradient boosting"):
        assert mean("ece", wrong, name) > 0.1 > mean("ece", wrong, "AltMin, am-mem")


def test_the_calibration_error_is_the_distance_of_accuracy_and_probability_by_bins() -> None:
    error = probabilities.calibration_error
    p, right = np.array([0.95, 0.91, 0.55, 0.55, 1.0]), np.array([True, False, True, True, True])
    assert error(p, right) == pytest.approx((abs(2 - 0.95 - 0.91 - 1.0) + abs(2 - 1.1)) / 5)
    sure = np.array([True, True, False, False])
    assert error(np.full(4, 0.5), sure) == 0


@pytest.mark.parametrize("name", ["iris", "moons"])
def test_validation_never_sees_test_rows(name: str) -> None:
    split = estimators.split
    _, held, *_ = split(name, 0, "test")
    train, validation, *_ = split(name, 0, "validation")
    if name == "iris":  # rows of iris may be alike, so they are counted
        assert len(train) + len(validation) == 150 - len(held)
    else:  # generated anew
        assert not (held[:, None] == np.concatenate([train, validation])[None]).all(2).any()
