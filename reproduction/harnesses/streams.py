"""Streams of river's tracks and of CapyMOA, one sample at a time."""

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from altmin import models
from reproduction.case import Case
from reproduction.harnesses.packages import harness
from reproduction.results import Row, Setting


class Net(nn.Module):
    """The network of `OnlineClassifier`, for deep-river: river would copy a Sequential as an empty list."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.net = models.mlp(inputs, (64, 32), outputs)

    def forward(self, x: Tensor) -> Any:
        return self.net(x)


TRACKS = {
    "Bananas": "BinaryClassificationTrack",
    "Phishing": "BinaryClassificationTrack",
    "ImageSegments": "MultiClassClassificationTrack",
    "ChickWeights": "RegressionTrack",
    "TrumpApproval": "RegressionTrack",
}
"""Of river's tracks the data that come with river."""
OURS = {"altmin.stream": "Gauss-Newton", "altmin.stream (one net)": "Gauss-Newton (one net)"}
RIVER = {**OURS, "linear": "linear", "Hoeffding tree": "Hoeffding tree", "adaptive forest": "adaptive forest"}
"""Models of the figure `streams`, and their names there."""
NEIGHBOURS, DEEP = "nearest neighbours", {"deep-river, lr 0.001": 1e-3, "deep-river, lr 0.008": 8e-3}


def progressive(case: Case, seed: int, setting: Setting) -> Row:
    """Accuracy, or mean absolute error, by `Track.run`, and microseconds of processor time for a sample."""
    from river import evaluate

    track = getattr(evaluate, TRACKS[case["data"]])()
    (data,) = (data for data in track if type(data).__name__ == case["data"])
    regression = case["data"] in ("ChickWeights", "TrumpApproval")
    torch.manual_seed(seed)
    learner, started = _learner(case.options["model"], data, regression, seed), time.thread_time()
    (state,) = track.run(learner, data, 1)
    seconds = time.thread_time() - started
    value = state["MAE" if regression else "Accuracy"].get()
    return {"value": round(value, 5), "microseconds": round(1e6 * seconds / state["Step"], 1)}


def _learner(name: str, data: Any, regression: bool, seed: int) -> Any:
    from river import neighbors, preprocessing

    from reproduction.streams import create

    if name in RIVER:
        return create(RIVER[name], regression, seed)
    kind = "Regressor" if regression else "Classifier"
    if name == NEIGHBOURS:
        model = getattr(neighbors, f"KNN{kind}")(engine=neighbors.SWINN(seed=seed))
    else:
        deep, loss = harness(f"deep_river.{'regression' if regression else 'classification'}"), "cross_entropy"
        outputs = 1 if regression else data.n_classes or 2
        model = getattr(deep, kind)(Net(data.n_features, outputs), "mse" if regression else loss, "adam", lr=DEEP[name])
    if regression:
        model = preprocessing.TargetStandardScaler(regressor=model)
    return preprocessing.StandardScaler() | model


STREAMS = ("SEA", "RandomRBFGeneratorDrift", "HyperPlaneClassification", "LEDGenerator")
MOA = {"Hoeffding tree": "HoeffdingTree", "adaptive forest": "AdaptiveRandomForestClassifier",
       "leveraging bagging": "LeveragingBagging", NEIGHBOURS: "KNN", "naive Bayes": "NaiveBayes"}  # fmt: skip


def prequential(case: Case, seed: int, setting: Setting) -> Row:
    """Accuracy by CapyMOA's `prequential_evaluation`, and the seconds that it took by its own clock."""
    base, classifiers = harness("capymoa.base"), harness("capymoa.classifier")

    class Online(base.Classifier):  # type: ignore[name-defined]
        """`OnlineClassifier` with CapyMOA's interface."""

        def __init__(self, schema: Any, random_seed: int = 0):
            from altmin.stream import OnlineClassifier

            super().__init__(schema, random_seed)
            self.model = OnlineClassifier(seed=random_seed)

        def train(self, instance: Any) -> None:
            self.model.learn_one(dict(enumerate(instance.x)), instance.y_index)

        def predict_proba(self, instance: Any) -> Any:
            found = self.model.predict_proba_one(dict(enumerate(instance.x)))
            return np.array([found.get(label, 0.0) for label in range(self.schema.get_num_classes())])

    stream, name = getattr(harness("capymoa.stream.generator"), case["stream"])(), case.options["model"]
    learner = (Online if name in OURS else getattr(classifiers, MOA[name]))(stream.get_schema())
    evaluation = harness("capymoa.evaluation").prequential_evaluation(stream, learner, max_instances=case["samples"])
    return {"value": evaluation.cumulative.accuracy() / 100, "seconds": evaluation.cpu_time()}
