"""Which methods can learn from a stream, and with which options they do unless told otherwise."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from altmin import methods
from altmin.common.errors import demand, unknown
from altmin.models import mlp
from altmin.stream.gauss_newton import GaussNewtonNets
from altmin.stream.method_net import MethodNet

GAUSS_NEWTON = "gauss-newton"
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    GAUSS_NEWTON: {},
    "am-adam": {"lr": 8e-3},
    "am-mem-fitted": {"lr": 3e-3, "rate": 20.0, "forget": 0.99, "damping": 0.1},
    "am-sgd": {"lr": 0.01, "momentum": 0.0},
    "adam": {"lr": 8e-3},
    "sgd": {"lr": 0.01, "momentum": 0.0},
}
"""By method. What a method keeps beside the weights is an optimizer's state and co-activation memories, which grow."""
HIDDEN: Mapping[str, tuple[int, ...]] = {GAUSS_NEWTON: (64, 32), "am-mem-fitted": (64, 32)}
"""Widths of hidden layers by method, where they are not (32, 32), with which the rates above were chosen."""
REGRESSION: Mapping[str, Mapping[str, Any]] = {"am-mem-fitted": {"rate": 2.0}}
"""What differs for the squared error, whose gradient has no bound."""


def max_features(name: str) -> int:
    """How many features a method learns from unless told otherwise: a memory takes space of their square, and a step
    time of their square and more."""
    return 1_000 if name == "am-mem-fitted" else 20_000


def widths(name: str, hidden: tuple[int, ...] | None) -> tuple[int, ...]:
    """Of the hidden layers: as given, or those of the method."""
    return HIDDEN.get(name, (32, 32)) if hidden is None else hidden


def check(name: str, lr: float | None, options: Mapping[str, Any] | None) -> None:
    """ValueError or TypeError for a method that cannot learn from a stream, or for options that it does not take."""
    if name not in DEFAULTS:
        raise unknown("method for a stream", name, DEFAULTS)
    if lr is not None and name == GAUSS_NEWTON:
        raise ValueError("method 'gauss-newton' has no learning rate; leave lr out, or choose another method")
    if lr is not None:
        demand(f"method {name!r}", "lr", lr)
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"options are a dict of the method's options, given {options!r:.60}")
    accepted = [each for each in methods.options(name) if each not in ("lr", "loss")]
    for option in options or {}:
        if option not in accepted:
            raise unknown(f"option of method {name!r},", option, accepted)
    if name == GAUSS_NEWTON:
        GaussNewtonNets(1, (), 2, 0, 1, **dict(options or {}))


def build(
    name: str,
    widths: tuple[int, tuple[int, ...], int],
    classes: bool,
    lr: float | None,
    options: Mapping[str, Any] | None,
    seed: int,
    members: int,
) -> GaussNewtonNets | MethodNet:
    """A fully connected network in double precision, which costs small nets nothing. widths: of its inputs, hidden
    layers and outputs. classes: whether it classifies. members: how many nets of Gauss-Newton are averaged."""
    inputs, hidden, outputs = widths
    if name == GAUSS_NEWTON:
        return GaussNewtonNets(inputs, hidden, outputs if classes else 0, seed, members, **dict(options or {}))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = mlp(*widths).double()
    loss = nn.CrossEntropyLoss() if classes else nn.MSELoss()
    own = {**DEFAULTS[name], **({} if classes else REGRESSION.get(name, {}))}
    chosen = {**own, **copy.deepcopy(dict(options or {})), **({} if lr is None else {"lr": lr})}
    return MethodNet(methods.create(name, model, loss=loss, **chosen), classes, np.random.default_rng(seed))
