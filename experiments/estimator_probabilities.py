"""How far the estimators' probabilities can be trusted: `python experiments/estimator_probabilities.py report`, then
`... table`, which fills docs/estimators.md from benchmarks/estimator-probabilities.jsonl and trains nothing.

The data are those of experiments/estimators.py, and two tables whose labels are partly wrong, so that a network that
learns every row is too sure of itself (estimator_data.py); a third of the rows is for the test. Measured are accuracy,
log loss, and the expected calibration error (ECE): the rows in ten bins by the probability of the label predicted, the
mean over rows of how far accuracy and mean probability are apart in their bin. --seeds N is how many splits (3 if not
given), --jobs N makes N runs at once, --out FILE is another file.
"""

import argparse
import statistics
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import HERE, Row, fill, parallel, read, table, write
from estimator_data import CLASSIFICATION, NOISY, split
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from altmin.cli import output
from altmin.sklearn import AltMinClassifier

REPORT = HERE / "benchmarks/estimator-probabilities.jsonl"
DOCUMENT = HERE / "docs/estimators.md"
BINS = 10
GROUPS = {"six tables": tuple(CLASSIFICATION), "wrong labels": tuple(NOISY)}
OURS = [(name, way) for name in ("AltMin", "AltMin, am-mem") for way in ("", "early stopping", "temperature")]
WAYS = [*OURS, ("MLP, scaled", ""), ("gradient boosting", "")]
MEASURES = {"accuracy": "accuracy", "log_loss": "log loss", "ece": "ECE"}


def made(name: str, way: str, seed: int) -> Any:
    if name == "MLP, scaled":
        return make_pipeline(StandardScaler(), MLPClassifier(random_state=seed))
    if name == "gradient boosting":
        return HistGradientBoostingClassifier(random_state=seed)
    method = "am-mem" if name == "AltMin, am-mem" else "am-adam"
    ours = AltMinClassifier(method=method, early_stopping=way == "early stopping", random_state=seed)
    return CalibratedClassifierCV(ours, method="temperature", cv=3, ensemble=False) if way == "temperature" else ours


def calibration_error(p: np.ndarray, right: np.ndarray) -> float:
    """The ECE for the probabilities of the labels predicted, and whether these are right."""
    place = np.minimum((p * BINS).astype(int), BINS - 1)
    gaps = (abs(right[place == k].sum() - p[place == k].sum()) for k in range(BINS))
    return float(sum(gaps) / len(p))


def run(data: str, name: str, way: str, seed: int) -> Row:
    """One classifier trained on one split, and the measures of its probabilities for the test rows."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of scikit-learn's networks that have not converged within their epochs
    X, X_test, y, y_test = split(data, seed, "test")
    classifier = made(name, way, seed).fit(X, y)
    p, right = classifier.predict_proba(X_test), classifier.predict(X_test) == y_test
    row = {"data": data, "estimator": name, "way": way, "seed": seed, "accuracy": float(right.mean())}
    return row | {"log_loss": float(log_loss(y_test, p)), "ece": calibration_error(p.max(1), right)}


def report_table(path: Path = REPORT) -> str:
    """Of each classifier the mean over the tables of each group."""
    _, *rows = read(path)
    lines = []
    for name, way in WAYS:
        mine = [row for row in rows if (row["estimator"], row["way"]) == (name, way)]
        line = [", ".join(filter(None, (name, way)))]
        for names in GROUPS.values():
            chosen = [row for row in mine if row["data"] in names]
            line += [f"{statistics.mean(row[measure] for row in chosen):.4f}" for measure in MEASURES]
        lines.append(line)
    head = [f"{group}: {words}" for group in GROUPS for words in MEASURES.values()]
    return table(["classifier", *head], lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["report", "table"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=REPORT)
    given = parser.parse_args(arguments)
    if given.what == "report":
        data = [name for names in GROUPS.values() for name in names]
        tasks = [(name, *way, seed) for seed in range(given.seeds) for name in data for way in WAYS]
        rows = list(parallel(run, tasks, given.jobs))
        write(given.out, [{"environment": output.environment(torch.device("cpu"))}, *rows])
        print(report_table(given.out))
    else:
        fill(DOCUMENT, "\n" + report_table(given.out) + "\n", "probabilities")
    return 0


if __name__ == "__main__":
    sys.exit(main())
