"""Options and mini-batches for the trial, drawn at random, many of them wrong on purpose."""

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .drawn_models import Drawn

Values = Mapping[str, Sequence[Any]]

REFUSED = (math.nan, -1.0, "0.5", -math.inf, {}, object)
"""What no option that is a number may be: a method that takes it without a word is wrong."""

ODD = (None, math.inf, 0, 0.0, True, [0.1], (0.1, 0.2), np.float64(0.5), np.array([0.1]), torch.tensor(0.5))
ODD = (*ODD, torch.tensor([0.1, 0.2]), 1e38, 1e19, 1e-45, 10**400, 1 + 1j, 1.5, "", b"1", 7)
"""What may be refused or not, as long as nothing breaks."""

PENALTY: Values = {"start": (0.1, 1.0, 10), "increment": (0.0, 0.5), "growth": (1.0, 2), "maximum": (None, 50.0)}
GRADIENT: Values = {
    "steps": (1, 2, 3),
    "lr": ("exact", 0.1, 0.01),
    "momentum": (0.0, 0.5),
    "tolerance": (0.0, 1e-3),
    "l1": (0.0, 0.01),
    "share": (0.0, 0.1, 0.5, 1.0),
    "order": ("codes-first", "weights-first"),
}
RECURRENT: Values = {**GRADIENT, "sweep": ("parallel", "sequential"), "rounds": (1, 2, 3)}
DISCRETE: Values = {"amplify": (1.0, 2.0), "sweeps": (1, 2), "residual": ("hinge", "squared")}
ADAM: Values = {
    "lr": (1e-3, 0.05, 0.0),
    "betas": ((0.9, 0.999), (0.0, 0.5)),
    "eps": (1e-8, 1e-3),
    "weight_decay": (0.0, 0.1),
    "decoupled_weight_decay": (True, False),
    "l1": (0.0, 0.01),
    "steps": (1, 2, 3),
    "clip_norm": (None, 1.0),
    "decay_biases": (True, False),
}
SGD: Values = {name: ADAM[name] for name in ("lr", "weight_decay", "l1", "steps", "clip_norm", "decay_biases")} | {
    "momentum": (0.0, 0.9)
}
MEMORY: Values = {"forget": (0.0, 0.9, 1.0), "damping": (0.0, 30.0), "sweeps": (None, 1, 2), "rate": (None, 1.0, 300.0)}
METHOD: Values = {name: ADAM[name] for name in ("lr", "weight_decay")}

WORDS = ("order", "sweep", "residual", "decoupled_weight_decay", "decay_biases", "betas", "fused")
"""Options that are no numbers, for which anything may be refused or not."""


def draw_options(r: Random, values: Values, wrong: float) -> tuple[dict[str, Any], bool, bool]:
    """Some of the options, each wrong with this probability; whether one must be refused, and whether one may be."""
    given, must, odd = dict[str, Any](), False, False
    for name, good in values.items():
        if r.random() < 0.35:
            bad = r.random() < wrong
            must_be = bad and r.random() < 0.5 and name not in WORDS
            given[name] = r.choice(REFUSED if must_be else ODD if bad else good)
            if name in ("steps", "rounds", "sweeps", "epochs") and _large(given[name]):
                given[name] = 7  # that many would be done
            must |= must_be
            odd |= bad
    return given, must, odd


def _large(value: Any) -> bool:
    return isinstance(value, int | float) and value > 7


def words(options: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={'10**400' if isinstance(value, int) and value > 10**300 else repr(value)}"
        for name, value in options.items()
    )


def good_batch(r: Random, drawn: Drawn, labels: bool, n: int | None = None) -> tuple[Tensor, Tensor]:
    """A mini-batch that fits the model. labels: targets are classes, else they are like the output."""
    n = r.choice((1, 2, 3, 5, 8)) if n is None else n
    if drawn.integers:
        x = torch.randint(drawn.integers, (n, *drawn.shape))
    else:
        x = torch.randn(n, *drawn.shape, dtype=drawn.dtype)
    return x, torch.randint(drawn.outputs, (n,)) if labels else torch.randn(n, drawn.outputs, dtype=drawn.dtype)


def _with(t: Tensor, value: float) -> Tensor:
    t = t.clone()
    if t.numel():
        t.view(-1)[t.numel() // 2] = value
    return t


def _floats(t: Tensor) -> Tensor:
    return t if t.is_floating_point() else t.float()


ANY: dict[str, Callable[[Tensor], Any]] = {
    "None": lambda t: None,
    "a list": lambda t: t.tolist(),
    "numpy": lambda t: t.numpy(),
    "a string": lambda t: "batch",
    "empty": lambda t: t[:0],
    "one dimension more": lambda t: t.unsqueeze(-1),
    "two dimensions more": lambda t: t[None, None],
    "flat": lambda t: t.flatten(),
    "one number": lambda t: t.flatten()[0],
    "one feature more": lambda t: torch.cat([t, t[..., :1]], -1),
    "no features": lambda t: t[..., :0],
    "one sample": lambda t: t[:1],
    "one sample more": lambda t: torch.cat([t, t[:1]]),
    "half": lambda t: t.half(),
    "bfloat16": lambda t: t.bfloat16(),
    "the other float": lambda t: t.float() if t.dtype == torch.float64 else t.double(),
    "complex": lambda t: t.to(torch.complex64),
    "integers": lambda t: t.long(),
    "int32": lambda t: t.int(),
    "bytes": lambda t: t.byte(),
    "booleans": lambda t: t > 0,
    "meta": lambda t: t.to("meta"),
    "sparse": lambda t: t.to_sparse(),
    "NaN": lambda t: _with(_floats(t), math.nan),
    "infinite": lambda t: _with(_floats(t), math.inf),
    "1e19": lambda t: _floats(t) * 1e19,
    "1e38": lambda t: _with(_floats(t), 1e38),
    "zeros": lambda t: t * 0,
    "below zero": lambda t: t - 1,
    "too large": lambda t: t + 7,
    "a huge label": lambda t: _with(t, 2**62) if not t.is_floating_point() else t,
    "-100": lambda t: _with(t, -100),
}
FITTING: dict[str, Callable[[Tensor], Tensor]] = {
    "requires_grad": lambda t: t.clone().requires_grad_() if t.is_floating_point() else t,
    "not contiguous": lambda t: t.repeat_interleave(2, -1)[..., ::2],
    "expanded": lambda t: t[:1].expand(t.shape),
    "every second": lambda t: t.repeat_interleave(2, 0)[::2],
    "of inference": lambda t: _inferred(t),
    "conjugate view": lambda t: torch.view_as_real(torch.complex(t, t))[..., 0] if t.dtype == torch.float32 else t,
}
"""Other forms of a mini-batch that fits all the same."""


def _inferred(t: Tensor) -> Tensor:
    with torch.inference_mode():
        return t.clone()


def draw_batch(r: Random, drawn: Drawn, labels: bool, wrong: float) -> tuple[Any, Any, str, bool]:
    """Inputs and targets, in words, and whether they fit the model as far as can be told."""
    x, y = good_batch(r, drawn, labels)
    said = f"x {tuple(x.shape)}, y {tuple(y.shape)}"
    if r.random() < 0.2:
        form = r.choice(sorted(FITTING))
        x, said = FITTING[form](x), f"{said}, x {form}"
    if r.random() >= wrong:
        return x, y, said, not x.is_inference()  # which autograd cannot keep
    which, how = r.choice("xxy"), r.choice(sorted(ANY))
    if which == "x":
        return ANY[how](x.detach()), y, f"{said}, x spoilt: {how}", False
    return x, ANY[how](y), f"{said}, y spoilt: {how}", False
