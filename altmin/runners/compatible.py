"""Properties that members of an ensemble must share, for one program to compute all their steps."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from altmin.core.losses import Loss
from altmin.core.trainer import AltMin
from altmin.methods.protocol import Method
from altmin.runners.members import TEMPLATES, rule_of


def check(methods: Sequence[Method]) -> None:
    """Raise ValueError for members that cannot be trained together."""
    if not methods:
        raise ValueError("an Ensemble has at least one member, given none")
    seen: set[int] = set()
    for i, method in enumerate(methods):
        if reason := _refusal(method):
            raise ValueError(f"member {i} cannot be in an Ensemble: {reason}; train it by itself")
        mine = {id(p) for p in method.model.parameters()}
        if seen & mine:
            raise ValueError(f"member {i} shares a parameter with another; each needs a model of its own")
        seen |= mine
    first = dict(_traits(methods[0]))
    for i, method in enumerate(methods[1:], 1):
        other = dict(_traits(method))
        for name in first | other:
            a, b = first.get(name, "absent"), other.get(name, "absent")
            if a != b:
                raise ValueError(
                    "the members of an Ensemble differ in nothing but weights, learning rates, the optimizer's numbers "
                    f"and mu, and {name} is {a!r:.60} in member 0 but {b!r:.60} in member {i}; train that one by itself"
                )


def _refusal(method: Any) -> str:
    """Return why a method cannot be a member; empty if it can."""
    if type(method) not in TEMPLATES:
        return f"{type(method).__name__} is neither AltMin nor Backprop, which learn in each step"
    if isinstance(method, AltMin):
        if method.chain.tied:
            return f"its blocks share the parameter {next(iter(method.chain.tied.values()))!r}"
        gathered = "it has gathered parts of a mini-batch that wait for apply()" if method.updates.gathered else ""
        return gathered or method.why_not_captured()
    if not isinstance(method.optimizer, torch.optim.Adam | torch.optim.SGD):
        return f"{type(method.optimizer).__name__} is neither Adam, AdamW nor SGD"
    other = ("amsgrad", "maximize", "nesterov", "dampening", "differentiable")
    used = [name for name in other if any(group.get(name) for group in method.optimizer.param_groups)]
    return f"its optimizer has {used[0]}" if used else ""


def _traits(method: Any) -> Iterator[tuple[str, Any]]:
    """Yield by name everything that must be the same in every member."""
    yield "the kind of method", (type(method).__name__, type(method.optimizer).__name__)
    for name, module in method.model.named_modules():
        yield from _settings(f"layer {name} of the model" if name else "the model", module)
    for name, p in method.model.named_parameters():
        yield f"{name}'s shape, type and device", (tuple(p.shape), p.dtype, str(p.device))
        yield f"whether {name} is trained", p.requires_grad
    loss = getattr(method.loss, "function", method.loss)
    if isinstance(loss, nn.Module | Loss):
        yield from _settings("the loss", loss, ("rows", "training"))
        yield from ((f"{name} of the loss", _plain(b)) for name, b in getattr(loss, "_buffers", {}).items())
    else:
        yield "the loss", loss
    rules = dict.fromkeys(method.updates.rules.values()) if isinstance(method, AltMin) else [rule_of(method)]
    for rule in rules:
        where = f"the weight rule {type(rule).__name__}" if isinstance(method, AltMin) else "the optimizer"
        yield from _settings(where, rule, ("betas", *rule.numbers()))
        yield f"momentum of {where}", bool(getattr(rule, "momentum", 0))
    if isinstance(method, AltMin):
        yield "the cut of the model into blocks", str(method.chain)
        yield from _settings("the code solver", method.codes)
        yield from _settings("the penalty", method.penalty, ("start", "value"))
        inside = {id(p) for block in method.theta for p in block}
        for name, p in method.model.named_parameters():
            if id(p) not in inside:  # the second bias of a recurrent layer: no part of the algorithm
                yield f"the value of {name}", _plain(p)


def _settings(where: str, thing: Any, ignored: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the type of an object and its plain attributes."""
    yield where, getattr(thing, "__qualname__", type(thing).__name__)
    for name, value in vars(thing).items():
        if name not in ignored and type(value) in (bool, int, float, str, tuple, type(None), Tensor):
            yield f"{name} of {where}", _plain(value)


def _plain(value: Any) -> Any:
    """Return a tensor as numbers."""
    return value.tolist() if isinstance(value, Tensor) else value
