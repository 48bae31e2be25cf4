"""The settings of an estimator: which have a meaning, and which options they give the method."""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from altmin import methods
from altmin.common.devices import usable
from altmin.common.errors import demand, demand_switch
from altmin.sklearn.targets import Labels, Targets

NETWORK = "network is a module or a function (inputs, outputs) -> module, given"
LR, DECAY = 1e-3, 0.01
"""The learning rate and the weight decay that "auto" stands for, but for methods in an estimator's `_tuned`; chosen on
validation data: docs/estimators.md."""


def check(estimator: Any) -> None:
    """ValueError or TypeError for a setting that has no meaning."""
    of = type(estimator).__name__
    for name in ("batch_size", "epochs", "patience"):
        demand(of, name, getattr(estimator, name), low=1, whole=True)
    demand(of, "tol", estimator.tol)
    _check_rates(of, estimator)
    demand(of, "validation_fraction", estimator.validation_fraction, above=True)
    if estimator.validation_fraction >= 1:
        raise ValueError(f"validation_fraction of {of} lies between 0 and 1, given {estimator.validation_fraction!r}")
    if estimator.options is not None and not isinstance(estimator.options, dict):
        raise TypeError(f"options of {of} is a dict of the method's options, given {estimator.options!r:.60}")
    _check_network(of, estimator)
    demand_switch(of, "warm_start", estimator.warm_start)
    categorical = estimator.categorical
    if categorical is not None and not (isinstance(categorical, str) and categorical == "auto"):
        raise ValueError(f'categorical of {of} is "auto" or None, given {categorical!r:.60}')
    if categorical is not None and not estimator.standardise:
        raise ValueError('categorical="auto" standardises the columns of numbers; leave standardise=True')
    usable(f"device of {of}", estimator.device)


def _check_rates(of: str, estimator: Any) -> None:
    lr, decay = estimator.lr, estimator.weight_decay
    if isinstance(decay, str) and decay != "auto":
        raise ValueError(f'weight_decay of {of} is a number or "auto", given {decay!r:.60}')
    if decay != "auto":
        demand(of, "weight_decay", decay)
    if isinstance(lr, str) and lr != "auto":
        raise ValueError(f'lr of {of} is a number, None or "auto", given {lr!r:.60}')


def _check_network(of: str, estimator: Any) -> None:
    network, hidden = estimator.network, estimator.hidden
    if network is not None and not callable(network):
        raise TypeError(f"{NETWORK} {network!r:.60}")
    if isinstance(hidden, str) or not isinstance(hidden, Sequence | np.ndarray):
        raise TypeError(f"hidden of {of} is a tuple of widths such as (100, 100), given {hidden!r:.60}")
    for width in hidden:
        demand(of, "every width in hidden", width, low=1, whole=True)


def method_options(estimator: Any, targets: Targets) -> dict[str, Any]:
    """Rate, weight decay and loss, as far as the method has such options. Its own rate, unless one is given, and for
    labels its own loss serve too. ValueError for other targets and a method whose loss cannot be chosen."""
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
    """The method's option weight_decay. "auto" is `tuned` where the method has that option, and gives way to `options`.
    ValueError for a number above zero where it has none, or one beside that of `options`."""
    method, given = estimator.method, estimator.weight_decay
    known, auto = "weight_decay" in methods.options(method), given == "auto"
    if not auto and "weight_decay" in (estimator.options or {}):
        raise ValueError(f"weight_decay={given!r} is given, and in options too; give it once")
    if not known and not auto and given:
        raise ValueError(f'method {method!r} has no weight decay, given {given!r}; leave it "auto"')
    return {"weight_decay": tuned if auto else float(given)} if known else {}
