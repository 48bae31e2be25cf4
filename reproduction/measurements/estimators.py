"""AltMinClassifier and AltMinRegressor beside scikit-learn's networks and its trees by gradient boosting, all with
their defaults, on data that come with scikit-learn; and how far their probabilities can be trusted.

Ours is given every table as it is, and standardises inside. Scikit-learn's networks get it in three ways: "raw" is the
table as it is, "scaled" a pipeline with StandardScaler, "all scaled" also scales the targets of a regression
(TransformedTargetRegressor). Trees need no scale, and there is one model of them for each target.
"""

import statistics
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from reproduction.case import Case
from reproduction.figure import Figure
from reproduction.measurements import results
from reproduction.results import Row, Setting
from reproduction.tables import markdown, table

Table = tuple[np.ndarray, np.ndarray]


def _made(maker: str, **options: Any) -> Callable[[int], Table]:
    return lambda seed: getattr(import_module("sklearn.datasets"), maker)(random_state=seed, **options)[:2]


def _brought(loader: str) -> Callable[[int], Table]:
    return lambda seed: getattr(import_module("sklearn.datasets"), loader)(return_X_y=True)


CLASSIFICATION: dict[str, Callable[[int], Table]] = {
    "iris": _brought("load_iris"),
    "wine": _brought("load_wine"),
    "breast cancer": _brought("load_breast_cancer"),
    "digits": _brought("load_digits"),
    "moons": _made("make_moons", n_samples=600, noise=0.3),
    "clusters": _made("make_classification", n_samples=600, n_informative=8, n_classes=3, n_clusters_per_class=2),
}
NOISY: dict[str, Callable[[int], Table]] = {
    "15 % wrong labels": _made("make_classification", n_samples=1500, n_informative=8, n_classes=3, flip_y=0.15),
    "30 % wrong labels": _made("make_classification", n_samples=1500, n_informative=6, class_sep=0.7, flip_y=0.3),
}
REGRESSION: dict[str, Callable[[int], Table]] = {
    "diabetes": _brought("load_diabetes"),
    "linnerud": _brought("load_linnerud"),
    "friedman 1": _made("make_friedman1", n_samples=600, noise=1.0),
    "friedman 2": _made("make_friedman2", n_samples=600, noise=100.0),
    "friedman 3": _made("make_friedman3", n_samples=600, noise=0.1),
    "swiss roll": _made("make_swiss_roll", n_samples=600, noise=0.5),
}
KINDS = {
    "AltMin": "altmin.sklearn:AltMin",
    "am-mem": "altmin.sklearn:AltMin",
    "MLP": "sklearn.neural_network:MLP",
    "trees": "sklearn.ensemble:HistGradientBoosting",
}
"""Where the classifier and the regressor of each kind are found."""
NAMES = {("am-mem", "raw"): "AltMin, am-mem", ("trees", "raw"): "gradient boosting"}
"""What a column is called, if not by estimator and preparation."""
OTHERS = [("am-mem", "raw"), ("MLP", "raw"), ("MLP", "scaled"), ("MLP", "all scaled"), ("trees", "raw")]
TASKS = {"accuracy": (CLASSIFICATION, [way for way in OTHERS if way[1] != "all scaled"]), "error": (REGRESSION, OTHERS)}
BINS = 10
"""Of the expected calibration error (ECE): by the probability of the label predicted, the mean over rows of how far
accuracy and mean probability are apart in their bin."""
OURS = [(name, way) for name in ("AltMin", "am-mem") for way in ("raw", "early stopping", "temperature")]
MEASURES = {"accuracy": "accuracy", "log_loss": "log loss", "ece": "ECE"}


def split(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """X to train on, a third for the test, y for each."""
    from sklearn.model_selection import train_test_split

    X, y = (CLASSIFICATION | NOISY | REGRESSION)[name](seed)
    found = train_test_split(X, y, test_size=1 / 3, random_state=seed, stratify=None if name in REGRESSION else y)
    return tuple(found)


def estimator(kind: str, way: str, seed: int, regression: bool, targets: int = 1) -> Any:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.multioutput import MultiOutputRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    module, _, name = KINDS[kind].partition(":")
    more: Row = {"early_stopping": True} if way == "early stopping" else {}
    more |= {"method": "am-mem"} if kind == "am-mem" else {}
    kinds = "Regressor" if regression else "Classifier"
    made = getattr(import_module(module), name + kinds)(random_state=seed, **more)
    if kind == "trees" and targets > 1:
        made = MultiOutputRegressor(made)
    if way == "temperature":
        return CalibratedClassifierCV(made, method="temperature", cv=3, ensemble=False)
    if way.endswith("scaled"):
        made = make_pipeline(StandardScaler(), made)
    return TransformedTargetRegressor(made, transformer=StandardScaler()) if way == "all scaled" else made


def score(case: Case, seed: int, setting: Setting) -> Row:
    """The accuracy, or the root mean squared error in deviations of the target."""
    X, X_test, y, y_test = split(case["data"], seed)
    regression = case["data"] in REGRESSION
    made = estimator(case["estimator"], case["way"], seed, regression, y.shape[1] if y.ndim > 1 else 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of scikit-learn's networks that have not converged within their epochs
        made.fit(X, y)
    if not regression:
        return {"value": float(made.score(X_test, y_test))}
    return {"value": float(np.sqrt((((made.predict(X_test) - y_test) / y_test.std(0)) ** 2).mean()))}


def probabilities(case: Case, seed: int, setting: Setting) -> Row:
    """Measures of a classifier's probabilities for the test rows."""
    from sklearn.metrics import log_loss

    X, X_test, y, y_test = split(case["data"], seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = estimator(case["estimator"], case["way"], seed, False).fit(X, y)
    p, right = made.predict_proba(X_test), made.predict(X_test) == y_test
    error = calibration_error(p.max(1), right)
    return {"accuracy": float(right.mean()), "log_loss": float(log_loss(y_test, p)), "ece": error}


def calibration_error(p: np.ndarray, right: np.ndarray) -> float:
    """The ECE for the probabilities of the labels predicted, and whether these are right."""
    place = np.minimum((p * BINS).astype(int), BINS - 1)
    gaps = (abs(right[place == k].sum() - p[place == k].sum()) for k in range(BINS))
    return float(sum(gaps) / len(p))


def case(measure: Callable[[Case, int, Setting], Row], data: str, way: tuple[str, str], seeds: int) -> Case:
    settings = {"measured": measure.__name__, "data": data, "estimator": way[0], "way": way[1]}
    return Case(measure, settings, seeds=seeds)


SCORES = [
    case(score, data, way, 5) for names, ways in TASKS.values() for data in names for way in [("AltMin", "raw"), *ways]
]
WAYS = [*OURS, ("MLP", "scaled"), ("trees", "raw")]
CALIBRATED = [case(probabilities, data, way, 3) for data in [*CLASSIFICATION, *NOISY] for way in WAYS]
FIGURES = [Figure("estimators", "Estimators beside scikit-learn's", [*SCORES, *CALIBRATED], axes=(), minutes=60)]


def mean(data: str, way: tuple[str, str]) -> float:
    return statistics.mean(row["value"] for row in results("estimators").all(case(score, data, way, 5)))


def beside(measure: str, way: tuple[str, str]) -> str:
    """Ours beside another: the mean difference of accuracies or the geometric mean of the ratios of errors, and on how
    many data sets ours is level or ahead."""
    pairs = [(mean(data, ("AltMin", "raw")), mean(data, way)) for data in TASKS[measure][0]]
    if measure == "accuracy":
        size, ahead = f"{statistics.mean(a - b for a, b in pairs):+.4f}", sum(a >= b for a, b in pairs)
    else:
        size, ahead = f"× {statistics.geometric_mean(a / b for a, b in pairs):.3f}", sum(a <= b for a, b in pairs)
    return f"AltMin {size}, ahead or level on {ahead} of {len(pairs)}"


def _scores(measure: str) -> str:
    names, ways = TASKS[measure]
    lines = [[data, *(f"{mean(data, way):.4f}" for way in [("AltMin", "raw"), *ways])] for data in names]
    head = [f"{measure} on", "AltMin", *(NAMES.get(way, ", ".join(way)) for way in ways)]
    return markdown(head, [*lines, ["all", "", *(beside(measure, way) for way in ways)]])


table("estimators.classification")(lambda: _scores("accuracy"))
table("estimators.regression")(lambda: _scores("error"))


@table("estimators.probabilities")
def probabilities_of_all() -> str:
    """Of each classifier the mean over the tables of each group."""
    lines = []
    for way in WAYS:
        line = [NAMES.get(way, ", ".join(way).removesuffix(", raw"))]
        for names in (CLASSIFICATION, NOISY):
            rows = [row for data in names for row in results("estimators").all(case(probabilities, data, way, 3))]
            line += [f"{statistics.mean(row[measure] for row in rows):.4f}" for measure in MEASURES]
        lines.append(line)
    groups = ("six tables", "wrong labels")
    return markdown(["classifier", *(f"{group}: {name}" for group in groups for name in MEASURES.values())], lines)
