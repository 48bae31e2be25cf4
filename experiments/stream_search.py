"""How the defaults of `altmin.stream` were chosen: `python experiments/stream_search.py METHOD`.

METHOD is am-adam, adam, am-mem-fitted or gauss-newton. Of the first three all settings learn the same streams at once,
a sample at a time, as an ensemble of nets 32-32 in double precision on features standardised as they come; the streams
have two classes, of which the loss tells whether the sample was classified rightly before it was learnt. Settings of
gauss-newton are estimators with one net, which also learn streams of `GENERATED`. No stream of docs/streams.md is
among them, though some have generators in common. Results go to benchmarks/stream_search.jsonl.
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


def _joined(kind: Any, rules: tuple[int, int], width: int) -> Any:
    before, after = (kind(classification_function=k, seed=3 + k) for k in rules)
    return synth.ConceptDriftStream(before, after, position=SAMPLES // 2, width=width, seed=1).take(SAMPLES)


def _moons() -> Any:
    from sklearn.datasets import make_moons

    x, y = make_moons(SAMPLES, noise=0.3, random_state=3)
    return [(dict(enumerate(row)), int(label)) for row, label in zip(x.tolist(), y, strict=True)]


def _diabetes() -> Any:
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    return [(dict(enumerate(x[i])), float(y[i])) for i in np.random.default_rng(5).permutation(len(x))]


def _walking() -> Any:
    """A level that wanders, seen through noise."""
    g = np.random.default_rng(5)
    level = np.cumsum(0.05 * g.normal(size=SAMPLES))
    x = np.c_[level[:, None] + 0.3 * g.normal(size=(SAMPLES, 4)), g.normal(size=(SAMPLES, 3))]
    y = 3 * level + np.sin(x[:, 5]) + 0.1 * g.normal(size=SAMPLES)
    return [(dict(enumerate(row)), float(target)) for row, target in zip(x.tolist(), y, strict=True)]


def _lagged() -> Any:
    """A season and a trend, from the four values before."""
    g = np.random.default_rng(6)
    t = np.arange(SAMPLES + 5)
    s = np.sin(t / 15) + 0.002 * t + 0.1 * g.normal(size=len(t))
    return [({f"lag{k}": s[i + k] for k in range(4)}, float(s[i + 4])) for i in range(SAMPLES)]


GENERATED: dict[str, Callable[[], Any]] = {
    "rbf-five": lambda: synth.RandomRBF(121, 122, n_classes=5, n_features=6, n_centroids=30).take(SAMPLES),
    "led": lambda: synth.LEDDrift(seed=5, noise_percentage=0.1, n_drift_features=3).take(SAMPLES),
    "waveform": lambda: synth.Waveform(seed=7).take(SAMPLES),
    "stagger": lambda: _joined(synth.STAGGER, (0, 2), 50),
    "mixed": lambda: synth.Mixed(classification_function=1, seed=9).take(SAMPLES),
    "moons": _moons,
    "friedman-still": lambda: synth.Friedman(seed=21).take(SAMPLES),
    "planes": lambda: synth.Planes2D(seed=22).take(SAMPLES),
    "diabetes": _diabetes,
    "walking": _walking,
    "lagged": _lagged,
}
"""The last five are regressions."""
REGRESSION = list(GENERATED)[-5:]
AROUND = {"start": (0.15, 1.0), "floor": (0.02, 0.1), "forget": (0.998, 0.9995), "walk": (3e-5, 1e-4)}


def around() -> list[dict[str, Any]]:
    """The defaults of gauss-newton, and with one of them changed."""
    hidden = [{"hidden": [32, 32]}, {"hidden": [64, 64]}]
    return [{}, *({name: value} for name, values in AROUND.items() for value in values), *hidden]


def estimated() -> list[Row]:
    """Of every setting the accuracy on each stream, and the mean absolute error over that of the first setting."""
    import altmin.stream

    rows: list[Row] = []
    for options in around():
        hidden = tuple(options.get("hidden", (64, 32)))
        given = {name: value for name, value in options.items() if name != "hidden"}
        found: dict[str, float] = {}
        for name, make in {**STREAMS, **GENERATED}.items():
            kind = altmin.stream.OnlineRegressor if name in REGRESSION else altmin.stream.OnlineClassifier
            model, scores = kind(hidden, options=given, members=1, seed=0), []
            for x, y in make():
                predicted = model.predict_one(x)
                scores.append(abs(predicted - y) if name in REGRESSION else float(predicted == y))
                model.learn_one(x, y)
            error = statistics.mean(scores)
            found[name] = round(error, 4)
        relative = [found[name] / (rows[0] if rows else found)[name] for name in REGRESSION]
        right = [value for name, value in found.items() if name not in REGRESSION]
        means = {"mean": round(statistics.mean(right), 4), "relative_error": round(statistics.mean(relative), 4)}
        rows.append({"method": "gauss-newton", "options": options, **found, **means})
        print(options, means, flush=True)
    return rows


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
    rows: list[Row] = [row for row in read(RESULTS) if row["method"] != method] if RESULTS.exists() else []
    if method == "gauss-newton":
        write(RESULTS, rows + estimated())
        sys.exit()
    found = {stream: accuracies(method, stream) for stream in STREAMS}
    for i, options in enumerate(settings(method)):
        each = {stream: round(values[i], 4) for stream, values in found.items()}
        rows.append({"method": method, "options": options, **each, "mean": round(statistics.mean(each.values()), 4)})
    write(RESULTS, rows)
