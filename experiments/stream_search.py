"""How the defaults of `altmin.stream.settings` were chosen: `python experiments/stream_search.py METHOD`.

METHOD is am-adam, adam or am-mem-fitted. All settings learn the same streams at once, a sample at a time, as an
ensemble of nets 32-32 in double precision on features standardised as they come; the streams are none of
docs/streams.md and have two classes, of which the loss tells whether the sample was classified rightly before it was
learnt. Results go to benchmarks/stream_search.jsonl.
"""

import math
import random
import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from common import HERE, Row, read, write
from river.datasets import synth

import altmin
from altmin.stream.features import RunningStatistics

RESULTS = HERE / "benchmarks/stream_search.jsonl"
SAMPLES, SETTINGS = 2000, 48
RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
MOVING = {"n_centroids": 30, "n_drift_centroids": 30, "change_speed": 0.002}
CATEGORIES = {"n_num_features": 5, "n_cat_features": 2, "n_categories_per_feature": 3}


def _cancer() -> Any:
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    return [(dict(enumerate(x[i])), int(y[i])) for i in np.random.default_rng(5).permutation(len(x))]


def _swapped() -> Any:
    before, after = (synth.Sine(classification_function=k, seed=102 + k) for k in (2, 3))
    return synth.ConceptDriftStream(before, after, position=SAMPLES // 2, width=20, seed=1).take(SAMPLES)


STREAMS: dict[str, Callable[[], Any]] = {
    "rbf": lambda: synth.RandomRBF(101, 102, n_classes=2, n_features=8, n_centroids=40).take(SAMPLES),
    "rbf-moving": lambda: synth.RandomRBFDrift(111, 112, n_classes=2, n_features=10, **MOVING).take(SAMPLES),
    "hyperplane": lambda: synth.Hyperplane(103, n_features=10, n_drift_features=4, mag_change=0.002).take(SAMPLES),
    "sine": _swapped,
    "tree": lambda: synth.RandomTree(106, 107, n_classes=2, **CATEGORIES).take(SAMPLES),
    "cancer": _cancer,
}


def settings(method: str) -> list[dict[str, float]]:
    if method != "am-mem-fitted":
        return [{"lr": lr} for lr in RATES]
    draw = random.Random(1)
    return [
        {
            "lr": draw.choice([1e-3, 3e-3, 1e-2]),
            "rate": 10 ** draw.uniform(0, 3),
            "damping": 10 ** draw.uniform(-1.5, 2),
            "forget": 1 - 10 ** draw.uniform(-3.5, -0.7),
        }
        for _ in range(SETTINGS)
    ]


def accuracies(method: str, stream: str) -> list[float]:
    """Of every setting, over the whole stream."""
    data = list(STREAMS[stream]())
    names, running, rows = sorted(data[0][0]), RunningStatistics(len(data[0][0])), []
    for x, _ in data:
        row = np.array([float(x[name]) for name in names])
        running.update(row)
        rows.append(running.standardise(row))
    classes: dict[Any, int] = {}
    x, y = torch.tensor(np.array(rows)), torch.tensor([classes.setdefault(y, len(classes)) for _, y in data])
    members = []
    for each in settings(method):
        torch.manual_seed(0)
        members.append(altmin.methods.create(method, altmin.models.mlp(len(names), (32, 32), 2).double(), **each))
    ensemble = altmin.Ensemble(members)
    losses = torch.stack([ensemble.step(x[i : i + 1], y[i : i + 1]).loss for i in range(len(x))])
    right: list[float] = (losses < math.log(2)).double().mean(0).tolist()
    return right


if __name__ == "__main__":
    torch.set_num_threads(1)
    method = sys.argv[1]
    found = {stream: accuracies(method, stream) for stream in STREAMS}
    rows: list[Row] = [row for row in read(RESULTS) if row["method"] != method] if RESULTS.exists() else []
    for i, options in enumerate(settings(method)):
        each = {stream: round(values[i], 4) for stream, values in found.items()}
        rows.append({"method": method, "options": options, **each, "mean": round(statistics.mean(each.values()), 4)})
    write(RESULTS, rows)
