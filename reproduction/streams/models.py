"""Models that learn streams: those of `altmin.stream` with their defaults, methods of the library, river's, and a
baseline. River is imported when one is created."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from reproduction.results import Row
from reproduction.streams.data import river


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
    def made(kind: str) -> Callable[[int], Any]:
        return lambda seed: getattr(import_module("altmin.stream"), kind)(**options, seed=seed)

    return Model(made("OnlineClassifier"), made("OnlineRegressor"), "ours")


def _by(method: str, options: Row, regression: Row | None = None, hidden: tuple[int, ...] = (32, 32)) -> Model:
    """Return the models that a method trains. regression: its options for the squared error, where they differ."""

    def made(kind: str, given: Row) -> Callable[[int], Any]:
        return lambda seed: getattr(import_module("reproduction.streams.methods"), kind)(method, given, hidden, seed)

    return Model(made("MethodClassifier", options), made("MethodRegressor", regression or options), "ours")


def _scaled(model: Any) -> Any:
    return river("preprocessing").StandardScaler() | model


MEMORY = {"lr": 3e-3, "forget": 0.99, "damping": 0.1}
MODELS = {
    "Gauss-Newton": _ours(),
    "Gauss-Newton (one net)": _ours(members=1),
    "AM-mem": _by("am-mem-fitted", {**MEMORY, "rate": 20.0}, {**MEMORY, "rate": 2.0}, (64, 32)),
    "AM-Adam": _by("am-adam", {"lr": 8e-3}),
    "Adam": _by("adam", {"lr": 8e-3}),
    "linear": Model(
        lambda seed: _scaled(river("multiclass").OneVsRestClassifier(river("linear_model").LogisticRegression())),
        lambda seed: _scaled(river("linear_model").LinearRegression()),
    ),
    "naive Bayes": Model(lambda seed: river("naive_bayes").GaussianNB(), None),
    "Hoeffding tree": Model(
        lambda seed: river("tree").HoeffdingTreeClassifier(),
        lambda seed: _scaled(river("tree").HoeffdingTreeRegressor()),
    ),
    "Hoeffding adaptive tree": Model(
        lambda seed: river("tree").HoeffdingAdaptiveTreeClassifier(seed=seed),
        lambda seed: _scaled(river("tree").HoeffdingAdaptiveTreeRegressor(seed=seed)),
    ),
    "adaptive rules": Model(None, lambda seed: _scaled(river("rules").AMRules())),
    "adaptive forest": Model(
        lambda seed: river("forest").ARFClassifier(seed=seed),
        lambda seed: _scaled(river("forest").ARFRegressor(seed=seed)),
        "ensemble",
    ),
    "Mondrian forest": Model(
        lambda seed: river("forest").AMFClassifier(seed=seed),
        lambda seed: river("forest").AMFRegressor(seed=seed),
        "ensemble",
    ),
    "random patches": Model(
        lambda seed: river("ensemble").SRPClassifier(seed=seed),
        lambda seed: _scaled(river("ensemble").SRPRegressor(seed=seed)),
        "ensemble",
    ),
    "leveraging bagging": Model(
        lambda seed: river("ensemble").LeveragingBaggingClassifier(
            model=river("tree").HoeffdingTreeClassifier(), seed=seed
        ),
        None,
        "ensemble",
    ),
    "target before": Model(lambda seed: river("dummy").NoChangeClassifier(), lambda seed: LastTarget(), "baseline"),
}
"""In the order of the tables."""


def create(name: str, regression: bool, seed: int) -> Any:
    """Return a model by its name. ValueError if there is no such kind of it."""
    made = MODELS[name].regressor if regression else MODELS[name].classifier
    if made is None:
        raise ValueError(f"there is no {'regressor' if regression else 'classifier'} {name!r}")
    return made(seed)
