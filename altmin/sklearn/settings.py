"""The settings of an estimator: which have a meaning, and which options they give the method."""

import inspect
from numbers import Integral, Real
from typing import Any

from sklearn.utils._param_validation import Interval, StrOptions
from torch import nn

from altmin import methods
from altmin.sklearn.targets import Labels

LR, DECAY = 1e-3, 0.01
"""The learning rate and the weight decay that "auto" stands for, but for methods in an estimator's `_tuned`; chosen on
validation data: docs/estimators.md."""
COUNT = [Interval(Integral, 1, None, closed="left")]
RATE = [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})]
CONSTRAINTS: dict[str, list[Any]] = {
    **{"hidden": ["array-like"], "network": [nn.Module, callable, None], "method": [str], "options": [dict, None]},
    **{"lr": [*RATE, None], "weight_decay": RATE, "batch_size": COUNT, "epochs": COUNT, "patience": COUNT},
    **{"tol": RATE[:1], "early_stopping": ["boolean"], "standardise": ["boolean"], "warm_start": ["boolean"]},
    **{"validation_fraction": [Interval(Real, 0, 1, closed="neither")], "categorical": [StrOptions({"auto"}), None]},
    **{"verbose": ["verbose"], "random_state": ["random_state"], "device": [str]},
}
"""What scikit-learn checks of every estimator's settings."""


def method_options(estimator: Any, targets: Any) -> dict[str, Any]:
    """Return rate, weight decay and loss, as far as the method has such options. Its own rate, unless one is given, and
    for labels its own loss serve too. ValueError for other targets and a method whose loss cannot be chosen."""
    method, lr = estimator.method, estimator.lr
    known = inspect.signature(methods.factory(method)).parameters
    tuned, decay = estimator._tuned.get(method, (LR, DECAY))
    given: dict[str, Any] = _decay(estimator, decay)
    if lr == "auto":
        given |= {"lr": tuned} if "lr" in known else {}
    elif lr is not None:
        given["lr"] = lr
    if "loss" in known and known["loss"].default in (None, inspect.Parameter.empty):
        return given | {"loss": targets.loss()}
    if not isinstance(targets, Labels):
        raise ValueError(f"method {method!r} trains on one label for each row alone; use am-adam or another")
    return given


def _decay(estimator: Any, tuned: float) -> dict[str, float]:
    """Return the method's option weight_decay. "auto" is `tuned` where the method has that option, and gives way to
    `options`. ValueError for a number above zero where it has none, or one beside that of `options`."""
    method, given = estimator.method, estimator.weight_decay
    known, auto = "weight_decay" in methods.options(method), given == "auto"
    if not auto and "weight_decay" in (estimator.options or {}):
        raise ValueError(f"weight_decay={given!r} is given, and in options too; give it once")
    if not known and not auto and given:
        raise ValueError(f'method {method!r} has no weight decay, given {given!r}; leave it "auto"')
    return {"weight_decay": tuned if auto else float(given)} if known else {}
