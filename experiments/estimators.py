"""The figures of docs/estimators.md: `python experiments/estimators.py choose`, `... report`, then `... table`.

AltMinClassifier and AltMinRegressor beside scikit-learn's MLPClassifier and MLPRegressor, and its trees by gradient
boosting, HistGradientBoostingClassifier and -Regressor, all with their defaults, on data that come with scikit-learn
(estimator_data.py). `choose` measures candidates for our defaults on validation data:
benchmarks/estimators-choice.jsonl. `report` measures on test data: benchmarks/estimators.jsonl. `table` fills
docs/estimators.md from these files and trains nothing. --jobs N makes N runs at once, --seeds N is how many splits
(5 if not given), --out FILE is another file.

Ours is given every table as it is, and standardises inside. Scikit-learn's is given it in three ways: "raw" is the
table as it is, "scaled" a pipeline with StandardScaler, "all scaled" also scales the targets of a regression
(TransformedTargetRegressor). Trees need no scale, and there is one model of them for each target.
"""

import argparse
import statistics
import sys
import warnings
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import HERE, Row, fill, parallel, read, table, write
from estimator_data import CLASSIFICATION, REGRESSION, split
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from altmin.cli import output
from altmin.sklearn import AltMinClassifier, AltMinRegressor

REPORT, CHOICE = (HERE / f"benchmarks/{name}.jsonl" for name in ("estimators", "estimators-choice"))
DOCUMENT = HERE / "docs/estimators.md"
KINDS: dict[str, Any] = {
    "AltMin": (AltMinClassifier, AltMinRegressor),
    "am-mem": (partial(AltMinClassifier, method="am-mem"), partial(AltMinRegressor, method="am-mem")),
    "MLP": (MLPClassifier, MLPRegressor),
    "trees": (HistGradientBoostingClassifier, HistGradientBoostingRegressor),
}
NAMES = {("am-mem", "raw"): "AltMin, am-mem", ("trees", "raw"): "gradient boosting"}
"""What a column of the report is called, if not by estimator and preparation."""
WAYS = {
    "classification": (
        ("AltMin", "raw"),
        ("am-mem", "raw"),
        ("MLP", "raw"),
        ("MLP", "scaled"),
        ("trees", "raw"),
    ),
    "regression": (
        ("AltMin", "raw"),
        ("am-mem", "raw"),
        ("MLP", "raw"),
        ("MLP", "scaled"),
        ("MLP", "all scaled"),
        ("trees", "raw"),
    ),
}
DATA = {"classification": CLASSIFICATION, "regression": REGRESSION}
CANDIDATES: list[dict[str, Any]] = [
    {"batch_size": 32, "weight_decay": 0.0},
    {"batch_size": 64, "weight_decay": 0.0},
    {"batch_size": 200, "weight_decay": 0.0},
    {"batch_size": 200, "weight_decay": 0.0, "lr": 0.002},
    {"batch_size": 64, "weight_decay": 0.0, "epochs": 50},
    {"batch_size": 64, "weight_decay": 0.0, "hidden": (100,)},
    {"batch_size": 64, "weight_decay": 0.0, "standardise": False},
    {"batch_size": 64, "weight_decay": 0.0, "early_stopping": True},
    {"batch_size": 64, "weight_decay": 1e-3},
    {"batch_size": 64, "weight_decay": 1e-2},
    {"batch_size": 64, "weight_decay": 3e-2},
    {"method": "am-mem", "lr": 0.004, "weight_decay": 1.0},
    {"method": "am-mem", "lr": 0.01, "weight_decay": 1.0},
    {"method": "am-mem", "lr": 0.006, "weight_decay": 2.0},
    {"method": "am-mem", "lr": 0.01, "weight_decay": 3.0},
    {"method": "am-mem", "lr": 0.008, "weight_decay": 1.5},
]


CHOSEN = """Other settings on validation data: a third of the rows outside the test split, with newly generated data
(`... choose`, three splits). The mean accuracy over the classifications, the geometric mean of the errors over the
regressions:

"""


def prepared(estimator: Any, preparation: str) -> Any:
    if preparation == "raw":
        return estimator
    scaled = make_pipeline(StandardScaler(), estimator)
    return TransformedTargetRegressor(scaled, transformer=StandardScaler()) if preparation == "all scaled" else scaled


def run(name: str, of: str, options: dict[str, Any], preparation: str, seed: int, on: str) -> Row:
    """One estimator trained on one split: its accuracy, or its root mean squared error, in deviations of the target."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of scikit-learn's networks that have not converged within their epochs
    classes = name in CLASSIFICATION
    X, X_test, y, y_test = split(name, seed, on)
    estimator = KINDS[of][not classes](random_state=seed, **options)
    if of == "trees" and y.ndim > 1:
        estimator = MultiOutputRegressor(estimator)
    estimator = prepared(estimator, preparation).fit(X, y)
    if classes:
        value = estimator.score(X_test, y_test)
    else:
        value = float(np.sqrt((((estimator.predict(X_test) - y_test) / y_test.std(0)) ** 2).mean()))
    row = {"data": name, "task": "classification" if classes else "regression", "estimator": of, "options": options}
    return row | {"preparation": preparation, "seed": seed, "on": on, "value": value}


def tasks(what: str, seeds: int) -> list[tuple[Any, ...]]:
    """Of every run its arguments."""
    found: list[tuple[Any, ...]] = []
    for task, names in DATA.items():
        for seed, name in product(range(seeds), names):
            if what == "choose":
                found += [(name, "AltMin", options, "raw", seed, "validation") for options in CANDIDATES]
                found.append((name, "MLP", {}, "scaled", seed, "validation"))
            else:
                found += [(name, of, {}, preparation, seed, "test") for of, preparation in WAYS[task]]
    return found


def mean(rows: list[Row], **wanted: Any) -> float:
    return statistics.mean(row["value"] for row in rows if all(row[key] == value for key, value in wanted.items()))


def verdict(rows: list[Row], task: str, of: str, preparation: str) -> tuple[float, int]:
    """Ours beside another in this preparation: the mean difference of accuracies or the geometric mean of the ratios of
    errors, and on how many data sets ours is level or ahead."""
    ours = [mean(rows, data=name, estimator="AltMin") for name in DATA[task]]
    theirs = [mean(rows, data=name, estimator=of, preparation=preparation) for name in DATA[task]]
    pairs = list(zip(ours, theirs, strict=True))
    if task == "classification":
        return statistics.mean(a - b for a, b in pairs), sum(a >= b for a, b in pairs)
    return statistics.geometric_mean(a / b for a, b in pairs), sum(a <= b for a, b in pairs)


def report_table(path: Path = REPORT) -> str:
    _, *rows = read(path)
    text = ""
    for task, measure in (("classification", "accuracy"), ("regression", "error")):
        ways, lines = WAYS[task], []
        for name in DATA[task]:
            values = [mean(rows, data=name, estimator=of, preparation=preparation) for of, preparation in ways]
            lines.append([name, *(f"{value:.4f}" for value in values)])
        last = ["all", "", *(_summary(*verdict(rows, task, *way), task) for way in ways[1:])]
        named = (NAMES.get(way, ", ".join(way)) for way in ways[1:])
        head = [f"{measure} on", "AltMin", *named]
        text += table(head, [*lines, last]) + "\n"
    return text


def _summary(value: float, ahead: int, task: str) -> str:
    size = f"{value:+.4f}" if task == "classification" else f"× {value:.3f}"
    return f"AltMin {size}, ahead or level on {ahead} of {len(DATA[task])}"


def choice_table(path: Path = CHOICE) -> str:
    """Of every candidate the mean accuracy and the mean error on validation data."""
    if not path.exists():
        return (
            "How other settings do on validation data is not measured yet: `python experiments/estimators.py choose`.\n"
        )
    _, *rows = read(path)
    lines = []
    for of, options in [*(("AltMin", each) for each in CANDIDATES), ("MLP", {})]:
        mine = [row for row in rows if row["estimator"] == of and row["options"] == _plain(options)]
        accuracy, error = ([mean(mine, data=name) for name in names] for names in DATA.values())
        words = ", ".join(f"{key}={value}" for key, value in options.items()) or "StandardScaler and MLP"
        numbers = statistics.mean(accuracy), statistics.geometric_mean(error)
        lines.append([f"`{words}`", *(f"{number:.4f}" for number in numbers)])
    return CHOSEN + table(["settings", "accuracy", "error"], lines)


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """As options stand in a file."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["choose", "report", "table"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", choices=list(KINDS), help="measure these again, keep the file's rows of the other")
    given = parser.parse_args(arguments)
    if given.what == "table":
        fill(DOCUMENT, "\n" + report_table() + "\n")
        fill(DOCUMENT, "\n" + choice_table() + "\n", "choice")
        return 0
    path = given.out or (CHOICE if given.what == "choose" else REPORT)
    wanted = [task for task in tasks(given.what, given.seeds) if given.only in (None, task[1])]
    kept = [] if given.only is None else [row for row in read(path)[1:] if row["estimator"] != given.only]
    rows = list(parallel(run, wanted, given.jobs))
    write(path, [{"environment": output.environment(torch.device("cpu"))}, *rows, *kept])
    print(choice_table(path) if given.what == "choose" else report_table(path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
