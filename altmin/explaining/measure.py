"""One step of a copy of a model, seen block by block, beside backprop's gradient of the same mini-batch."""

import copy
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from altmin import layers
from altmin.calculus import CLOSED_FORMS, Discrete, Dropout, own_call
from altmin.calculus.context import Context
from altmin.calculus.cut_values import shortened
from altmin.calculus.elementwise import ReLU
from altmin.calculus.linear import Convolution
from altmin.common.errors import Diverged
from altmin.common.inputs import Batch, Inputs, call, tensors_of
from altmin.core.chain import Chain
from altmin.core.losses import CrossEntropy, Loss
from altmin.core.trainer import AltMin
from altmin.explaining.rows import Facts, Row
from altmin.explaining.watch import Watch, trainer_of

TIMED = 5
"""Steps whose times are measured, after a first one."""


def measure(
    subject: nn.Module | AltMin, x: Any, y: Tensor, method: str, options: Mapping[str, Any], context: Context
) -> tuple[list[Row], Facts]:
    """A row for each block, and what holds for the whole step. Neither the subject nor the state of random numbers
    changes. ValueError if the method has no codes, or the mini-batch does not fit the model."""
    with torch.no_grad():
        am = trainer_of(subject, "explain", method, options)
        x = am.chain.read(x)
        reference = copy.deepcopy(am.model)
        name = f"AltMin with {type(am.weights).__name__}" if isinstance(subject, AltMin) else method
        before = [[p.clone() for p in block] for block in am.theta]
        watch = Watch(am, context)
        with _forked(x):
            loss = float(watch.step(x, y).loss)
        _share_masks(am.chain, reference)
        with _forked(x):  # the random numbers of the step
            backprop = _backprop(am.chain, reference, x, y, am.loss)
        rows = [_row(watch, l, before[l], backprop) for l in range(len(am.chain))]
        facts = _facts(watch, name, tensors_of(x)[0], y, loss)
        with _forked(x):
            _measure_times(watch, x, y)
        rows = [replace(row, time=watch.milliseconds(row.block)) for row in rows]
        return rows, replace(facts, update=watch.median("update"))


def _forked(x: Any) -> AbstractContextManager[None]:
    """Random numbers drawn inside are drawn again afterwards."""
    device = getattr(x, "device", None)
    return torch.random.fork_rng(devices=[device] if device is not None and device.type == "cuda" else [])


def _share_masks(chain: Chain, reference: nn.Module) -> None:
    """Makes dropout in a copy of the chain's model draw its masks as the chain does: torch's own draws others."""
    found = {id(m.module) for block in chain for held in block.maps for m in held.inner if isinstance(m, Dropout)}
    for name, module in chain.model.named_modules():
        if id(module) in found:
            same = reference.get_submodule(name)
            same.forward = partial(_dropped, Dropout(same))


def _dropped(m: Dropout, x: Tensor) -> Tensor:
    return m.forward((), x)[0]


def _backprop(chain: Chain, model: nn.Module, x: Batch, y: Tensor, loss: Loss) -> dict[str, Tensor]:
    """Backprop's gradient of every parameter that has one, by autograd from the loss's gradient at the output; through
    activations without a derivative by the straight-through estimate."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    with torch.enable_grad():
        given = Inputs(dict(zip(chain.inputs, x.tensors, strict=True))) if isinstance(x, Inputs) else x
        output = call(layers.straight_through(model), given)
        output = output if chain.outputs is None else chain.outputs.flat(output)
    if not named or not output.requires_grad:
        return {}
    value = output.detach()
    delta = loss.at(value, loss.prepare(value, y)).delta
    grads = torch.autograd.grad(output, list(named.values()), delta, allow_unused=True)
    return {name: grad.to_dense() for name, grad in zip(named, grads, strict=True) if grad is not None}


def _row(watch: Watch, l: int, before: Sequence[Tensor], backprop: Mapping[str, Tensor]) -> Row:
    chain, block, value = watch.am.chain, watch.am.chain.blocks[l], watch.values[l]
    hidden, uses_autograd = l < len(chain) - 1, [m.module for held in block.maps for m in held.inner if m.uses_autograd]
    theta = watch.am.theta[l]
    named = {id(p): name for name, p in chain.model.named_parameters()}
    names = [named[id(p)] for p in theta]
    trained = [p.requires_grad for p in theta]
    mine = [g.to_dense() for g, yes in zip(watch.grads[l], trained, strict=True) if yes]
    theirs = [
        backprop.get(name, torch.zeros_like(p)) for name, p, yes in zip(names, theta, trained, strict=True) if yes
    ]
    size, g, b = norm([value]), norm(mine), norm(theirs)
    upstream = watch.upstream[l]
    return Row(
        block=l,
        modules=shortened([m.module._get_name() for m in block.maps]),
        names=tuple(names),
        parameters=sum(p.numel() for p in theta),
        output=tuple(value.shape[1:]),
        through_autograd=tuple(m._get_name() for m in uses_autograd),
        avoidable=tuple(filter(None, map(avoidable, uses_autograd))),
        frozen=not any(trained),
        time=watch.milliseconds(l),
        movement=_over(math.sqrt(watch.moves[l]), size) if hidden else None,
        length=watch.lengths.get(l) if hidden else None,
        residual=_over(math.sqrt(watch.residuals[l]), size) if hidden else None,
        dead=dead(chain, l, value) if hidden else None,
        taken=_over(norm([upstream - watch.left[l]]), norm([upstream])),
        gradient=g,
        backprop=b,
        cosine=sum(float((p * q).sum()) for p, q in zip(mine, theirs, strict=True)) / g / b if g and b else None,
        change=_over(norm([p - q for p, q in zip(theta, before, strict=True)]), norm(before)) or 0.0,
    )


def norm(tensors: Sequence[Tensor]) -> float:
    """The Euclidean norm of all entries together, in double precision."""
    return math.sqrt(sum(float(t.detach().double().square().sum()) for t in tensors))


def dead(chain: Chain, l: int, value: Tensor) -> float | None:
    """The part of block l's units that are not above 0 for any sample, at any place; None if no rectifier follows."""
    for m in chain.blocks[l + 1].prelude.maps:
        if isinstance(m, ReLU):
            axis = 1 if any(isinstance(each, Convolution) for each in chain.blocks[l].maps) else -1
            rows = value.movedim(axis, -1).flatten(0, -2)
            return float((rows <= 0).all(0).double().mean())
        if not m.selects:
            return None
    return None


def avoidable(module: nn.Module) -> str:
    """What keeps a module that goes through autograd from its closed form; empty if there is none."""
    if type(module) not in CLOSED_FORMS:
        return ""
    reason = "a hook or a forward of its own" if own_call(module) else "an option"
    return f"{type(module).__name__} ({reason})"


def _over(a: float, b: float) -> float | None:
    return a / b if b else None


def _measure_times(watch: Watch, x: Batch, y: Tensor) -> None:
    """Those of further steps; the first one, which makes buffers, does not count."""
    watch.clear()
    with suppress(Diverged):  # of a run that does not hold, the times so far are good enough
        for _ in range(TIMED):
            watch.step(x, y)


def _facts(watch: Watch, method: str, x: Tensor, y: Tensor, loss: float) -> Facts:
    am, output = watch.am, watch.values[-1]
    smooth = getattr(watch.solver, "gradient", watch.solver)
    step: Any = getattr(smooth, "lr", "exact")
    numbers, targets = x.is_floating_point(), y.is_floating_point()
    return Facts(
        method=method,
        samples=len(x),
        loss=loss,
        classes=output.numel() // max(1, y.numel()) if isinstance(am.loss, CrossEntropy) and not targets else None,
        input_mean=float(x.double().mean()) if numbers else None,
        input_std=float(x.double().std(correction=0)) if numbers else None,
        widest=_widest(x) if numbers else None,
        target_std=float(y.double().std(correction=0)) if targets else None,
        share=getattr(smooth, "share", None) if step == "exact" else None,
        step=None if step == "exact" else step,
        order=getattr(watch.solver, "order", None),
        truncated=am.chain.recurrent and getattr(smooth, "sweep", "") == "parallel",
        estimated=any(isinstance(m, Discrete) for block in am.chain for m in block.maps),
        idle=_idle(am.model),
        rounding=torch.finfo(output.dtype).eps,
        smallest_group=_smallest_group(am.chain, watch.values),
        update=0.0,
    )


def _widest(x: Tensor) -> float | None:
    """The largest standard deviation of a feature over the median of those that vary."""
    sizes = x.double().flatten(1).std(0, correction=0)
    varying = sizes[sizes > 0]
    return float(varying.max() / varying.median()) if len(varying) else None


def _idle(model: nn.Module) -> tuple[str, ...]:
    kinds = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)
    return tuple(dict.fromkeys(type(m).__name__ for m in model.modules() if isinstance(m, kinds) and not m.training))


def _smallest_group(chain: Chain, values: Sequence[Tensor]) -> int | None:
    found = [
        v.numel() // v.shape[1] for block, v in zip(chain, values, strict=True) if block.mixes_samples and v.ndim > 1
    ]
    return min(found, default=None)
