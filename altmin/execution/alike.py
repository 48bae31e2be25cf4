"""What members of an ensemble must have in common, for one program to serve all of them."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from altmin.calculus import AnyModule
from altmin.codes.discrete import StraightThroughCodes
from altmin.codes.gradient import GradientCodes
from altmin.codes.recurrent import RecurrentCodes
from altmin.methods.backprop import Backprop
from altmin.methods.protocol import Method
from altmin.trainer import AltMin
from altmin.weights.memory import CoActivationMemory

SOLVERS = (GradientCodes, RecurrentCodes, StraightThroughCodes)
INTERNAL = vars(nn.Module()).keys() - {"training"}
PLAIN = (bool, int, float, str, tuple, type(None))


def check(methods: Sequence[Method]) -> None:
    """Complains, in one sentence, of members that cannot be trained together."""
    if not methods:
        raise ValueError("an Ensemble has at least one member, given none; build its methods first")
    for i, method in enumerate(methods):
        if reason := refusal(method):
            raise ValueError(f"member {i} cannot be in an Ensemble: {reason}; train such methods one by one")
    owners: dict[int, int] = {}
    for i, method in enumerate(methods):
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
            if not _same(a, b):
                raise ValueError(
                    f"the members of an Ensemble are alike but for their numbers, and {name} is {_short(a)} "
                    f"in member 0 but {_short(b)} in member {i}; build them alike, or train that one by itself"
                )


def refusal(method: Any) -> str | None:
    """Why a method cannot be a member, or None."""
    if type(method) not in (AltMin, Backprop):
        return f"{type(method).__name__} is neither AltMin nor Backprop, which learn in each step"
    if isinstance(method, AltMin):
        codes = method.codes
        if type(codes) not in SOLVERS:
            return f"{type(codes).__name__} decides on the processor how to go on"
        if getattr(codes, "tolerance", 0):
            return "with a tolerance the processor decides when a code's steps end"
        if method.weights.state_dict().get("gathered"):
            return "it has gathered parts of a mini-batch that wait for apply()"
        for m in (m for block in method.chain for m in block.maps):
            if isinstance(m, AnyModule) and any(True for _ in m.module.buffers()):
                return f"{type(m.module).__name__} has buffers and no closed form"
    for module in method.model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.momentum is None and module.training:
            return "its batch norm averages over all batches (momentum=None)"
    groups = method.optimizer.param_groups
    if not isinstance(method.optimizer, torch.optim.Adam | torch.optim.SGD):
        return f"{type(method.optimizer).__name__} is neither Adam, AdamW nor SGD"
    for name in ("amsgrad", "maximize", "nesterov", "dampening", "differentiable"):
        if any(group.get(name) for group in groups):
            return f"its optimizer has {name}"
    return None


def traits(method: Any) -> Iterator[tuple[str, Any]]:
    """All that must be the same in every member, by name."""
    yield "the kind of method", type(method).__name__
    for name, module in method.model.named_modules():
        where = f"layer {name} of the model" if name else "the model"
        yield where, type(module).__name__
        for key, value in vars(module).items():
            if key not in INTERNAL and (type(value) in PLAIN or type(value) is Tensor):
                yield f"{key} of {where}", value
    for name, p in method.model.named_parameters():
        yield f"{name}'s shape, type and device", (tuple(p.shape), p.dtype, str(p.device))
        yield f"whether {name} is trained", p.requires_grad
    yield "the loss", method.loss
    optimizer = method.optimizer
    yield "the optimizer", type(optimizer).__name__
    yield "decoupled weight decay", [group.get("decoupled_weight_decay") for group in optimizer.param_groups][:1]
    if isinstance(method, AltMin):
        codes: Any = method.codes
        yield "the code solver", type(codes).__name__
        for key in ("steps", "l1", "sweep", "rounds"):
            yield f"{key} of the code solver", getattr(codes, key, None)
        yield "whether the code step is exact", codes.lr == "exact"
        rule: Any = method.weights
        yield "the weight rule", type(rule).__name__
        if isinstance(rule, CoActivationMemory):
            yield "sweeps of the weight rule", rule.sweeps
            yield "whether the weight rule has a rate", rule.rate is not None
            rule = rule.rest
            yield "the rest's weight rule", type(rule).__name__
        yield "steps of the weight rule", rule.steps
        yield "normalise of the weight rule", rule.normalise
        given = {id(p) for block in method.theta for p in block}
        for name, p in method.model.named_parameters():
            if id(p) not in given:  # the second bias of a recurrent layer: no part of the algorithm
                yield f"the value of {name}", p.detach()


def _same(a: Any, b: Any) -> bool:
    """Equal; of two losses, of one kind and with the same settings."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a.shape == b.shape and bool(torch.equal(a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if type(a).__module__.partition(".")[0] in ("torch", "altmin") and hasattr(a, "__dict__"):
        return _same(*({k: v for k, v in vars(each).items() if k not in ("rows", "training")} for each in (a, b)))
    return bool(a == b)


def _short(value: Any) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) < 60 else text[:57] + "..."
