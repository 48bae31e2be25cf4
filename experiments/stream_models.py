"""The models of docs/streams.md: ours with their defaults, river's own, and what predicts without learning."""

from collections.abc import Callable
from typing import Any, NamedTuple

from river import dummy, ensemble, forest, linear_model, multiclass, naive_bayes, preprocessing, rules, tree

from altmin.stream import OnlineClassifier, OnlineRegressor


class Model(NamedTuple):
    """Functions of a seed that make a classifier and a regressor; None where there is none. kind: "ours", "single" or
    "ensemble" of river's, "baseline"."""

    classifier: Callable[[int], Any] | None
    regressor: Callable[[int], Any] | None
    kind: str = "single"

    def serves(self, regression: bool) -> bool:
        return (self.regressor if regression else self.classifier) is not None


class LastTarget:
    """Predicts the target before."""

    last: float = 0.0

    def predict_one(self, x: Any) -> float:
        return self.last

    def learn_one(self, x: Any, y: float) -> None:
        self.last = y


def _ours(**options: Any) -> Model:
    return Model(
        lambda seed: OnlineClassifier(**options, seed=seed), lambda seed: OnlineRegressor(**options, seed=seed), "ours"
    )


def _scaled(model: Any) -> Any:
    return preprocessing.StandardScaler() | model


MODELS = {
    "Gauss-Newton": _ours(),
    "Gauss-Newton (one net)": _ours(members=1),
    "AM-mem": _ours(method="am-mem-fitted"),
    "AM-Adam": _ours(method="am-adam"),
    "Adam": _ours(method="adam"),
    "linear": Model(
        lambda seed: _scaled(multiclass.OneVsRestClassifier(linear_model.LogisticRegression())),
        lambda seed: _scaled(linear_model.LinearRegression()),
    ),
    "naive Bayes": Model(lambda seed: naive_bayes.GaussianNB(), None),
    "Hoeffding tree": Model(
        lambda seed: tree.HoeffdingTreeClassifier(), lambda seed: _scaled(tree.HoeffdingTreeRegressor())
    ),
    "Hoeffding adaptive tree": Model(
        lambda seed: tree.HoeffdingAdaptiveTreeClassifier(seed=seed),
        lambda seed: _scaled(tree.HoeffdingAdaptiveTreeRegressor(seed=seed)),
    ),
    "adaptive rules": Model(None, lambda seed: _scaled(rules.AMRules())),
    "adaptive forest": Model(
        lambda seed: forest.ARFClassifier(seed=seed), lambda seed: _scaled(forest.ARFRegressor(seed=seed)), "ensemble"
    ),
    "Mondrian forest": Model(
        lambda seed: forest.AMFClassifier(seed=seed), lambda seed: forest.AMFRegressor(seed=seed), "ensemble"
    ),
    "random patches": Model(
        lambda seed: ensemble.SRPClassifier(seed=seed),
        lambda seed: _scaled(ensemble.SRPRegressor(seed=seed)),
        "ensemble",
    ),
    "leveraging bagging": Model(
        lambda seed: ensemble.LeveragingBaggingClassifier(model=tree.HoeffdingTreeClassifier(), seed=seed),
        None,
        "ensemble",
    ),
    "target before": Model(lambda seed: dummy.NoChangeClassifier(), lambda seed: LastTarget(), "baseline"),
}
"""In the order of the tables."""


def create(name: str, regression: bool, seed: int) -> Any:
    model = MODELS[name]
    made = model.regressor if regression else model.classifier
    assert made is not None
    return made(seed)
