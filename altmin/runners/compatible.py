"""What members of an ensemble must have in common, for one program to compute all their steps."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from altmin.core.losses import Loss
from altmin.core.trainer import AltMin
from altmin.core.weights.rule import Rates
from altmin.layers import Stepwise, StraightThrough
from altmin.methods.backprop import Backprop
from altmin.methods.protocol import Method
from altmin.runners.members import TEMPLATES, varying


def check(methods: Sequence[Method]) -> None:
    """ValueError for members that cannot be trained together."""
    if not methods:
        raise ValueError("an Ensemble has at least one member, given none; build its methods first")
    owners: dict[int, int] = {}
    for i, method in enumerate(methods):
        if reason := refusal(method):
            raise ValueError(f"member {i} cannot be in an Ensemble: {reason}")
        for p in method.model.parameters():
            if owners.setdefault(id(p), i) != i:
                raise ValueError(
                    f"members {owners[id(p)]} and {i} share a parameter; each member needs a model of its own"
                )
    first = dict(traits(methods[0]))
    for i, method in enumerate(methods[1:], 1):
        other = dict(traits(method))
        for name in first | other:
            a, b = first.get(name, "absent"), other.get(name, "absent")
            if a != b:
                raise ValueError(
                    f"the members of an Ensemble differ in nothing but numbers, and {name} is {a!r:.60} in member 0 "
                    f"but {b!r:.60} in member {i}; give both the same, or train that one by itself"
                )


def _unwrapped(module: nn.Module) -> Iterator[nn.Module]:
    """All modules inside, but for what a `StraightThrough` gives a derivative."""
    yield module
    if not isinstance(module, StraightThrough):
        for child in module.children():
            yield from _unwrapped(child)


ALONE = "train such methods one by one"


def refusal(method: Any) -> str | None:
    """Why a method cannot be a member, and what to do; None if it can."""
    if type(method) not in TEMPLATES:
        return f"{type(method).__name__} is neither AltMin nor Backprop, which learn in each step; {ALONE}"
    if isinstance(method, Backprop) and any(isinstance(m, Stepwise) for m in _unwrapped(method.model)):
        return "an activation of its model has no derivative; wrap it in altmin.StraightThrough"
    if isinstance(method, AltMin) and (reason := _refused_parts(method)):
        return reason
    for module in method.model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.momentum is None and module.training:
            return "its batch norm averages over all batches (momentum=None); give it a momentum"
    return _refused_optimizer(method.optimizer)


def _refused_parts(am: AltMin) -> str | None:
    codes, rule = am.codes, am.weights
    if len(am.chain.inputs) > 1:
        return f"its model takes several inputs ({', '.join(am.chain.inputs)}); {ALONE}"
    if am.chain.tied:
        return f"its blocks share the parameter {next(iter(am.chain.tied.values()))!r}; {ALONE}"
    if not hasattr(codes, "why_not_captured"):
        return f"{type(codes).__name__} decides on the processor how to go on; {ALONE}"
    if reason := codes.why_not_captured():
        return str(reason)
    if getattr(rule, "damping", None) == 0 and getattr(rule, "steps", 1) is getattr(rule, "sweeps", 1) is None:
        return "without damping the processor decides how to solve for the weights; give damping above 0, or steps"
    if am.updates.gathered:
        return "it has gathered parts of a mini-batch that wait for apply(); call it first"
    return None


def _refused_optimizer(optimizer: Any) -> str | None:
    if optimizer is None or isinstance(optimizer, Rates):  # of weight rules without one
        return None
    if not isinstance(optimizer, torch.optim.Adam | torch.optim.SGD):
        return f"{type(optimizer).__name__} is neither Adam, AdamW nor SGD; {ALONE}"
    for name in ("amsgrad", "maximize", "nesterov", "dampening", "differentiable"):
        if any(group.get(name) for group in optimizer.param_groups):
            return f"its optimizer has {name}; {ALONE}"
    return None


def traits(method: Any) -> Iterator[tuple[str, Any]]:
    """Everything that must be the same in every member, by name."""
    yield "the kind of method", type(method).__name__
    for name, module in method.model.named_modules():
        yield from _settings(f"layer {name} of the model" if name else "the model", module)
    for name, p in method.model.named_parameters():
        yield f"{name}'s shape, type and device", (tuple(p.shape), p.dtype, str(p.device))
        yield f"whether {name} is trained", p.requires_grad
    loss = getattr(method.loss, "function", method.loss)
    if isinstance(loss, nn.Module | Loss):
        yield from _settings("the loss", loss, ignored=("rows", "training"))
        yield from ((f"{name} of the loss", _plain(b)) for name, b in getattr(loss, "_buffers", {}).items())
    else:
        yield "the loss", loss
    yield "the optimizer", type(method.optimizer).__name__
    groups = [] if method.optimizer is None else method.optimizer.param_groups
    yield "decoupled weight decay", [g.get("decoupled_weight_decay") for g in groups][:1]
    if isinstance(method, Backprop):
        yield "clip_norm", method.clip_norm
    if isinstance(method, AltMin):
        yield "the cut of the model into blocks", str(method.chain)
        names = [option.name for option in varying(method)]
        yield from _settings("the code solver", method.codes, names)
        for rule in {id(rule): rule for rule in method.updates.rules.values()}.values():
            yield from _settings(f"the weight rule {type(rule).__name__}", rule, names, ignored=("lr", "l1"))
        given = {id(p) for block in method.theta for p in block}
        for name, p in method.model.named_parameters():
            if id(p) not in given:  # the second bias of a recurrent layer: no part of the algorithm
                yield f"the value of {name}", _plain(p)


def _settings(
    where: str, thing: Any, varying: Collection[str] = (), ignored: Collection[str] = ()
) -> Iterator[tuple[str, Any]]:
    """The type of an object and its plain attributes; of those that may vary, whether they are numbers."""
    yield where, getattr(thing, "__qualname__", type(thing).__name__)
    for name, value in vars(thing).items():
        if name in ignored:
            continue
        if name in varying:
            yield f"whether {name} of {where} is a number", isinstance(value, int | float)
        elif type(value) in (bool, int, float, str, tuple, type(None), Tensor):
            yield f"{name} of {where}", _plain(value)


def _plain(value: Any) -> Any:
    """A tensor as numbers."""
    return value.tolist() if isinstance(value, Tensor) else value
