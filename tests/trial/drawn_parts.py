"""The parts of an `AltMin` for the trial, drawn at random and made under the eye of a judge."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import altmin

from .drawn_models import Drawn
from .drawn_options import ADAM, DISCRETE, GRADIENT, MEMORY, PENALTY, RECURRENT, SGD, Values, draw_options, words
from .judge import REFUSED, Judge


@dataclass
class Parts:
    """What an `AltMin` is made of. must: one of the options must be refused. good: nothing was drawn that could be.
    labels: targets are classes."""

    loss: Any = None
    codes: Any = None
    weights: Any = None
    penalty: Any = None
    must: bool = False
    good: bool = True
    labels: bool = True


LOSSES: dict[str, tuple[Callable[[], Any], bool]] = {
    "None": (lambda: None, True),
    "cross-entropy": (lambda: nn.CrossEntropyLoss(), True),
    "smoothed cross-entropy": (lambda: nn.CrossEntropyLoss(label_smoothing=0.1), True),
    "summed cross-entropy": (lambda: nn.CrossEntropyLoss(reduction="sum"), True),
    "cross-entropy as a function": (lambda: F.cross_entropy, True),
    "squared error": (lambda: nn.MSELoss(), False),
    "a smooth absolute error": (lambda: nn.SmoothL1Loss(), False),
    "a loss of one's own": (lambda: lambda o, y: (o - y).square().sum(1).mean() + 0.1 * o.cos().mean(), False),
    "a linear loss": (lambda: lambda o, y: (o * y).mean(), False),
}
WRONG_LOSSES: dict[str, tuple[Callable[[], Any], bool]] = {
    "'mse'": (lambda: "mse", False),
    "3": (lambda: 3, True),
    "no reduction": (lambda: nn.CrossEntropyLoss(reduction="none"), True),
    "a float": (lambda: lambda o, y: 1.0, True),
    "None from a function": (lambda: lambda o, y: None, True),
    "a constant": (lambda: lambda o, y: torch.ones(()), True),
    "of one argument": (lambda: lambda o: o.sum(), True),
    "NaN": (lambda: lambda o, y: (o * math.nan).mean(), True),
    "the square root of its own value below zero": (lambda: lambda o, y: (o.sum() * 0 - 1).sqrt(), True),
    "a class": (lambda: nn.MSELoss, False),
}


def draw_parts(r: Random, judge: Judge, drawn: Drawn, wrong: float) -> Parts:
    """All parts; one that is refused is left out."""
    parts = Parts()
    good = r.random() >= wrong
    table = LOSSES if good else WRONG_LOSSES
    name = r.choice(sorted(table))
    make, parts.labels = table[name]
    parts.loss, parts.good = make(), good
    judge.drawn.append(f"loss {name}")
    for part, draw in (("codes", _codes), ("weights", _weights), ("penalty", _penalty)):
        made, must = draw(r, judge, drawn, wrong)
        if made is REFUSED:
            parts.good = False
        else:
            setattr(parts, part, made)
            parts.must |= must
            parts.good &= not judge.drawn[-1].endswith("(odd)")
    return parts


def make(r: Random, judge: Judge, kind: type | Callable[..., Any], values: Values, wrong: float, **more: Any) -> Any:
    """An object by drawn options, and whether one of these must be refused."""
    options, must, odd = draw_options(r, values, wrong)
    name = getattr(kind, "__name__", str(kind))
    judge.drawn.append(f"{name}({words(options)}){' (odd)' * odd}")
    return judge.call(name, lambda: kind(**options, **more)), must


def _odd(r: Random, judge: Judge, name: str, values: tuple[Any, ...]) -> tuple[Any, bool]:
    value = r.choice(values)
    judge.drawn.append(f"{name} {value!r} (odd)")
    return value, False


def _codes(r: Random, judge: Judge, drawn: Drawn, wrong: float) -> tuple[Any, bool]:
    if r.random() < 0.3:
        judge.drawn.append("codes None")
        return None, False
    if r.random() < 0.15:
        named = ("gradient", "discrete", "straight-through", "parallel", "sequential", 0.1, 1)
        return _odd(r, judge, "codes", named)
    if r.random() < wrong:
        return _odd(r, judge, "codes", ("gradent", "", [], math.nan, -1.0, 0, True, object, torch.ones(2), {}))
    if drawn.recurrent and r.random() < 0.8:
        return make(r, judge, altmin.RecurrentCodes, RECURRENT, wrong)
    kind = r.choice(("gradient", "gradient", "discrete", "straight", "recurrent"))
    if kind == "discrete":
        inner, must = make(r, judge, altmin.GradientCodes, GRADIENT, wrong)
        found, also = make(r, judge, altmin.DiscreteCodes, DISCRETE, wrong, gradient=_or_none(inner))
        judge.drawn[-1] += " (odd)"
        return found, also or (must and inner is not REFUSED)
    kinds = {"gradient": altmin.GradientCodes, "straight": altmin.StraightThroughCodes}
    found, must = make(r, judge, kinds.get(kind, altmin.RecurrentCodes), GRADIENT, wrong)
    judge.drawn[-1] += "" if kind == "gradient" and not drawn.recurrent else " (odd)"
    return found, must


def _or_none(made: Any) -> Any:
    return None if made is REFUSED else made


def rmsprop(groups: Any) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(groups)


def lbfgs(groups: Any) -> torch.optim.Optimizer:
    """An optimizer that takes no groups and wants a closure."""
    return torch.optim.LBFGS(groups)


def _weights(r: Random, judge: Judge, drawn: Drawn, wrong: float) -> tuple[Any, bool]:
    if r.random() < 0.15:
        judge.drawn.append("weights None")
        return None, False
    if r.random() < wrong:
        return _odd(r, judge, "weights", ("adam", 0.1, altmin.LocalAdam, torch.optim.SGD, [], {}))
    kind = r.choice(("adam", "adam", "sgd", "memory", "any"))
    if kind == "adam":
        return make(r, judge, altmin.LocalAdam, ADAM, wrong)
    if kind == "sgd":
        return make(r, judge, altmin.LocalSGD, SGD, wrong)
    if kind == "any":
        factory = r.choice((rmsprop, lbfgs, lambda groups: None)) if r.random() < wrong else rmsprop
        values = {"lr": ADAM["lr"], "steps": ADAM["steps"], "l1": ADAM["l1"], "clip_norm": ADAM["clip_norm"]}
        options, must, _ = draw_options(r, values, wrong)
        options.setdefault("lr", 0.01)
        judge.drawn.append(f"LocalOptimizer({factory.__name__}, {words(options)}) (odd)")
        return judge.call("LocalOptimizer", lambda: altmin.LocalOptimizer(factory, **options)), must
    inner, must = make(r, judge, altmin.LocalAdam, ADAM, wrong)
    inner = inner if r.random() < 0.5 else None
    found, also = make(r, judge, altmin.FittedMemory, MEMORY, wrong, rest=_or_none(inner))
    judge.drawn[-1] += f", rest={'drawn' if inner else None} (odd)"
    return found, also or (must and inner is not None and inner is not REFUSED)


def _penalty(r: Random, judge: Judge, drawn: Drawn, wrong: float) -> tuple[Any, bool]:
    if r.random() < 0.3:
        judge.drawn.append("penalty None")
        return None, False
    if r.random() < wrong:
        return _odd(r, judge, "penalty", (0, -1.0, math.nan, math.inf, "1", [], True, torch.tensor(1.0), 10**400, {}))
    if r.random() < 0.3:
        judge.drawn.append("penalty 3.0")
        return 3.0, False
    return make(r, judge, altmin.Penalty, PENALTY, wrong)
