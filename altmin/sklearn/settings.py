"""The settings of an estimator: which have a meaning, and which options they give the method."""

import inspect
from numbers import Integral, Real
from typing import Any

from sklearn.utils._param_validation import Interval, StrOptions
from torch import nn

from altmin import methods
from altmin.sklearn.targets import Labels, Targets

TUNED = (1e-3, 0.01)
"""The learning rate and the weight decay that "auto" stands for, but for methods in an estimator's `_tuned`; chosen on
validation data: docs/estimators.md."""
COUNT = [Interval(Integral, 1, None, closed="left")]
RATE = [Interval(Real, 0, None, closed="left"), StrOptions({"auto"}), None]
CONSTRAINTS: dict[str, list[Any]] = {
    **{"hidden": ["array-like"], "network": [nn.Module, callable, None], "method": [str], "options": [dict, None]},
    **{"lr": RATE, "weight_decay": RATE, "batch_size": COUNT, "epochs": COUNT, "patience": COUNT},
    **{"tol": RATE[:1], "early_stopping": ["boolean"], "standardise": ["boolean"], "verbose": ["verbose"]},
    **{"validation_fraction": [Interval(Real, 0, 1, closed="neither")], "categorical": [StrOptions({"auto"}), None]},
    **{"random_state": ["random_state"], "device": [str]},
}
"""Constraints on every estimator's settings, which scikit-learn checks."""


def method_options(estimator: Any, targets: Targets) -> dict[str, Any]:
    """Return learning rate, weight decay and loss: "auto" where the method has such an option, None for the method's
    own. ValueError for other targets than labels and a method whose loss cannot be chosen."""
    known = inspect.signature(methods.factory(estimator.method)).parameters
    tuned = estimator._tuned.get(estimator.method, TUNED)
    options: dict[str, Any] = {}
    for name, auto in zip(("lr", "weight_decay"), tuned, strict=True):
        value = getattr(estimator, name)
        if value != "auto" and value is not None:
            options[name] = value
        elif value == "auto" and name in known:
            options[name] = auto
    if "loss" in known and known["loss"].default in (None, inspect.Parameter.empty):
        return options | {"loss": targets.loss}
    if type(targets) is not Labels:
        raise ValueError(f"method {estimator.method!r} trains on one label for each row alone; use am-adam or another")
    return options
