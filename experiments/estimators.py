"""The figures of docs/estimators.md: `python experiments/estimators.py choose`, `... report`, then `... table`.

AltMinClassifier and AltMinRegressor beside scikit-learn's MLPClassifier and MLPRegressor, all with their defaults, on
data that come with scikit-learn (estimator_data.py). `choose` measures candidates for our defaults on validation data:
benchmarks/estimators-choice.jsonl. `report` measures on test data: benchmarks/estimators.jsonl. `table` fills
docs/estimators.md from these files and trains nothing. --jobs N makes N runs at once, --seeds N is how many splits
(10 if not given), --out FILE is another file.

Preparations are the same for both: "raw" is the table as it is, "scaled" a pipeline with StandardScaler, "all scaled"
also scales the targets of a regression (TransformedTargetRegressor).
"""

import argparse
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import HERE, Row, fill, parallel, read, table, write
from estimator_data import CLASSIFICATION, REGRESSION, split
from sklearn.compose import TransformedTargetRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from altmin.cli import output
from altmin.sklearn import AltMinClassifier, AltMinRegressor

REPORT, CHOICE = (HERE / f"benchmarks/{name}.jsonl" for name in ("estimators", "estimators-choice"))
DOCUMENT = HERE / "docs/estimators.md"
KINDS: dict[str, Any] = {"AltMin": (AltMinClassifier, AltMinRegressor), "MLP": (MLPClassifier, MLPRegressor)}
PREPARATIONS = {"classification": ("raw", "scaled"), "regression": ("raw", "scaled", "all scaled")}
CANDIDATES: list[dict[str, Any]] = [
    *({"batch_size": size, "lr": lr} for size in (32, 64, 200) for lr in (5e-4, 1e-3, 2e-3)),
    {"hidden": (100,)},
    {"standardise": False},
    {"early_stopping": True},
    {"epochs": 100},
    {"epochs": 50},
    {"options": {"weight_decay": 1e-3}},
    {"options": {"weight_decay": 1e-2}},
]


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
    estimator = prepared(KINDS[of][not classes](random_state=seed, **options), preparation)
    start = time.perf_counter()
    estimator.fit(X, y)
    seconds = time.perf_counter() - start
    if classes:
        value = estimator.score(X_test, y_test)
    else:
        value = float(np.sqrt((((estimator.predict(X_test) - y_test) / y_test.std(0)) ** 2).mean()))
    row = {"data": name, "task": "classification" if classes else "regression", "estimator": of, "options": options}
    return row | {"preparation": preparation, "seed": seed, "on": on, "value": value, "seconds": round(seconds, 3)}


def tasks(what: str, seeds: int) -> list[tuple[Any, ...]]:
    """Of every run its arguments."""
    found: list[tuple[Any, ...]] = []
    for name in (*CLASSIFICATION, *REGRESSION):
        preparations = PREPARATIONS["classification" if name in CLASSIFICATION else "regression"]
        for seed in range(seeds):
            if what == "choose":
                found += [(name, "AltMin", options, "raw", seed, "validation") for options in CANDIDATES]
                found.append((name, "MLP", {}, "scaled", seed, "validation"))
            else:
                found += [(name, of, {}, preparation, seed, "test") for preparation in preparations for of in KINDS]
    return found


def mean(rows: list[Row], **wanted: Any) -> float:
    return statistics.mean(row["value"] for row in rows if all(row[key] == value for key, value in wanted.items()))


def compared(rows: list[Row], task: str, preparation: str) -> list[tuple[str, float, float]]:
    """Every data set of a task: its name, our mean and that of scikit-learn's."""
    names = CLASSIFICATION if task == "classification" else REGRESSION
    return [
        (name, *(mean(rows, data=name, preparation=preparation, estimator=of) for of in KINDS))  # type: ignore[misc]
        for name in names
    ]


def verdict(rows: list[Row], task: str, preparation: str) -> str:
    """Ours beside theirs over all data sets: the mean difference of accuracies, or the mean ratio of errors."""
    found = compared(rows, task, preparation)
    if task == "classification":
        ahead = sum(ours >= theirs for _, ours, theirs in found)
        return f"{statistics.mean(ours - theirs for _, ours, theirs in found):+.4f}, level or ahead on {ahead} of {len(found)}"
    ahead = sum(ours <= theirs for _, ours, theirs in found)
    ratio = statistics.geometric_mean(ours / theirs for _, ours, theirs in found)
    return f"× {ratio:.3f}, level or ahead on {ahead} of {len(found)}"


def report_table(path: Path = REPORT) -> str:
    _, *rows = read(path)
    text = ""
    for task, measure in (("classification", "accuracy"), ("regression", "error")):
        names, lines = PREPARATIONS[task], []
        for name in CLASSIFICATION if task == "classification" else REGRESSION:
            values = [mean(rows, data=name, preparation=p, estimator=of) for p in names for of in KINDS]
            lines.append([name, *(f"{value:.4f}" for value in values)])
        head = [f"{task}, {measure}", *(f"{of}, {p}" for p in names for of in KINDS)]
        text += table(head, lines) + "\n"
        text += "".join(f"- {task}, {p}: AltMin beside MLP {verdict(rows, task, p)}\n" for p in names) + "\n"
    seconds = {of: sum(row["seconds"] for row in rows if row["estimator"] == of) for of in KINDS}
    return text + f"All fits together took {seconds['AltMin']:.0f} s by AltMin and {seconds['MLP']:.0f} s by MLP.\n"


def choice_table(path: Path = CHOICE) -> str:
    """Of every candidate the mean accuracy and the mean error on validation data, and the seconds of a fit."""
    _, *rows = read(path)
    lines = []
    for of, options in [("AltMin", options) for options in CANDIDATES] + [("MLP", {})]:
        mine = [row for row in rows if row["estimator"] == of and row["options"] == _plain(options)]
        values = [mean(mine, data=name) for name in CLASSIFICATION], [mean(mine, data=name) for name in REGRESSION]
        words = ", ".join(f"{key}={value}" for key, value in options.items()) or "StandardScaler, MLP"
        seconds = statistics.mean(row["seconds"] for row in mine)
        lines.append(
            [
                words,
                f"{statistics.mean(values[0]):.4f}",
                f"{statistics.geometric_mean(values[1]):.4f}",
                f"{seconds:.2f}",
            ]
        )
    return table(["settings", "accuracy", "error", "seconds a fit"], lines)


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """As options stand in a file."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["choose", "report", "table"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    if given.what == "table":
        fill(DOCUMENT, "\n" + report_table() + "\n")
        fill(DOCUMENT, "\n" + choice_table() + "\n", "choice")
        return 0
    rows = list(parallel(run, tasks(given.what, given.seeds), given.jobs))
    path = given.out or (CHOICE if given.what == "choose" else REPORT)
    write(path, [{"environment": output.environment(torch.device("cpu"))}, *rows])
    print(choice_table(path) if given.what == "choose" else report_table(path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
