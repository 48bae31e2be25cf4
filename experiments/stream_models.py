"""The models of docs/streams.md: ours with their defaults, and river's own."""

from collections.abc import Callable
from typing import Any, NamedTuple

from river import forest, linear_model, multiclass, naive_bayes, preprocessing, tree

from altmin.stream import OnlineClassifier, OnlineRegressor


class Model(NamedTuple):
    """Functions of a seed that make a classifier and a regressor; None where there is none."""

    classifier: Callable[[int], Any] | None
    regressor: Callable[[int], Any] | None

    def serves(self, regression: bool) -> bool:
        return (self.regressor if regression else self.classifier) is not None


def _ours(method: str) -> Model:
    return Model(
        lambda seed: OnlineClassifier(method=method, seed=seed), lambda seed: OnlineRegressor(method=method, seed=seed)
    )


def _scaled(model: Any) -> Any:
    return preprocessing.StandardScaler() | model


BATCHES = {"forget": 0.9, "damping": 30.0, "rate": 300.0}
"""The library's defaults of AM-mem, which are for mini-batches."""
MODELS = {
    "AM-mem": _ours("am-mem-fitted"),
    "AM-Adam": _ours("am-adam"),
    "Adam": _ours("adam"),
    "linear": Model(
        lambda seed: _scaled(multiclass.OneVsRestClassifier(linear_model.LogisticRegression())),
        lambda seed: _scaled(linear_model.LinearRegression()),
    ),
    "naive Bayes": Model(lambda seed: naive_bayes.GaussianNB(), None),
    "Hoeffding tree": Model(
        lambda seed: tree.HoeffdingTreeClassifier(), lambda seed: _scaled(tree.HoeffdingTreeRegressor())
    ),
    "AM-mem for batches": Model(
        lambda seed: OnlineClassifier(method="am-mem-fitted", options=BATCHES, lr=2e-3, seed=seed), None
    ),
    "adaptive forest": Model(lambda seed: forest.ARFClassifier(seed=seed), None),
}


def create(name: str, regression: bool, seed: int) -> Any:
    model = MODELS[name]
    made = model.regressor if regression else model.classifier
    assert made is not None
    return made(seed)
