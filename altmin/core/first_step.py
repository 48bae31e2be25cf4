"""The check before a trainer's first step: the blocks against the model as a whole, which autograd differentiates."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from altmin.calculus.context import LOCAL, Context
from altmin.calculus.discrete import Discrete, Estimated
from altmin.calculus.other import AnyModule
from altmin.common.inputs import Batch, tensors_of
from altmin.core.chain import Chain, Theta
from altmin.core.losses import Loss
from altmin.core.step import encode, statistics

NEAR = {torch.float32: (0.05, 1e-3), torch.float64: (1e-5, 1e-8)}
"""How far tensors may be apart that are equal up to rounding: relative to the norm of the one expected, and relative to
the largest norm of all gradients."""
SCALE = 1024.0
"""By which a gradient at the output is divided, to see whether the gradients of parameters follow."""
SMALL = 1e-6
"""How far entries of a buffer may be apart besides."""


class Pass(NamedTuple):
    """A forward and a backward pass. buffers: as the pass leaves them, by name. grads: of the parameters, by name, None
    for those that have none; None instead of all if blocks estimate derivatives. drew: whether random numbers were
    drawn."""

    output: Tensor
    delta: Tensor
    buffers: Mapping[str, Tensor]
    grads: Mapping[str, Tensor | None] | None
    drew: bool = False


def check_first_step(chain: Chain, loss: Loss, x: Batch, y: Tensor, decays: bool, context: Context) -> None:
    """ValueError unless the blocks of a model have its output, autograd's gradients and the buffers that a call of it
    leaves, for this mini-batch. Nothing changes. decays: whether the weight rule moves parameters without a gradient.
    context: in which the loss reads its targets; of a rank, the rest is computed for its own rows alone.

    Takes two passes and three backward passes, with dropout off. Outputs may differ where the model draws random
    numbers elsewhere. Gradients are not compared where a block replaces a derivative by an estimate or by a part of it
    (discrete activations, recurrence).
    """
    x = x.clone() if any(t.is_inference() for t in tensors_of(x)) else x
    named = {name: p.detach() for name, p in chain.model.named_parameters()}
    opaque = any(block.uses_autograd for block in chain)  # a module that is called may change its parameters
    copies = {name: p.clone() for name, p in named.items()} if opaque else named
    with _without_dropout(chain.model), _same_attributes(chain.model), _same_buffers(chain.model):
        with _random_state(x):
            blocks = _by_blocks(chain, copies, loss, x, y, context)
        if not bool(blocks.output.sum().isfinite()):
            return  # the step says where
        with _random_state(x):
            whole = _by_autograd(chain, copies, x, blocks)
    for name, p in named.items() if opaque else ():
        if not torch.equal(copies[name], p):
            raise ValueError(f"the model changes its parameter {name!r} in place in its forward; do that between steps")
    _compare(blocks, whole, decays)


def _by_blocks(
    chain: Chain, parameters: Mapping[str, Tensor], loss: Loss, x: Batch, y: Tensor, context: Context
) -> Pass:
    """ValueError for a loss that depends on parameters, or that changes."""
    names = {id(p): name for name, p in chain.model.named_parameters()}
    held = [[names[id(p)] for p in block] for block in chain.parameters()]
    theta: Theta = [[parameters[name] for name in block] for block in held]
    values, states = encode(chain.blocks, theta, x, LOCAL)
    output = values[-1]
    targets = loss.prepare(output, y, context)
    for p in loss.others(output, y):
        raise ValueError(
            f"the loss depends on {names.get(id(p), 'a tensor outside the model')} besides the output, and only the "
            "output is differentiated; use weight_decay or l1 of the weight rule as a penalty (nothing was changed)"
        )
    delta = v = loss.delta(output, targets)
    buffers = _next_buffers(chain, statistics(chain.blocks, states))
    maps = [m for block in chain for each in block.maps for m in each.inner]
    if chain.recurrent or any(isinstance(m, Discrete | Estimated) for m in maps):
        return Pass(output, delta, buffers, None)
    grads: dict[str, Tensor | None] = {}
    with _in_a_sentence():
        for l, block in reversed(list(enumerate(chain))):
            for name, g in zip(held[l], block.core.grads(theta[l], states[l].core, v), strict=True):
                grads[name] = g if (other := grads.get(name)) is None else other + g  # of all blocks that use it
            v = block.vjp(theta[l], states[l], v) if l else v
    return Pass(output, delta, buffers, grads)


def _next_buffers(chain: Chain, kept: Sequence[tuple[Any, Any]]) -> dict[str, Tensor]:
    """The model's buffers as they will be once the statistics are written."""
    with _restored_buffers(chain.model):
        for m, what in kept:
            m.commit(what)
        return {name: b.clone() for name, b in chain.model.named_buffers()}


class _Whole(nn.Module):
    """A chain's model, called with its inputs by name, with its outputs as one tensor."""

    def __init__(self, chain: Chain):
        super().__init__()
        self.model, self.inputs, self.outputs = chain.model, chain.inputs, chain.outputs

    def forward(self, *given: Tensor) -> Any:
        several = len(given) > 1
        found = self.model(**dict(zip(self.inputs, given, strict=True))) if several else self.model(*given)
        return found if self.outputs is None else self.outputs.flat(found)


def _by_autograd(chain: Chain, parameters: Mapping[str, Tensor], x: Batch, blocks: Pass) -> Pass:
    """As the blocks: gradients where these have some. ValueError where autograd fails, and for a backward pass that is
    not linear."""
    whole = AnyModule(_Whole(chain), several=True)
    held = [name.removeprefix("model.") for name in whole.names]
    output, saved = whole.forward([parameters[name] for name in held], list(tensors_of(x)))
    assert saved.by.graph is not None
    _, leaves, end = saved.by.graph
    trained = [chain.model.get_parameter(name).requires_grad for name in held]
    names, of = list(itertools.compress(held, trained)), list(itertools.compress(leaves, trained))
    found: Sequence[Tensor | None] = [None] * len(of)
    if blocks.grads is not None and of and end.requires_grad and end.shape == blocks.delta.shape:
        with _in_a_sentence():
            found = torch.autograd.grad(end, of, blocks.delta, retain_graph=True, allow_unused=True)
            scaled = torch.autograd.grad(end, of, blocks.delta / SCALE, allow_unused=True)
        bound = _bound(found)
        for name, g, s in zip(names, found, scaled, strict=True):
            if g is not None and s is not None and _distance(SCALE * s, g) > NEAR[g.dtype][0] * _norm(g) + bound:
                raise ValueError(
                    f"the gradient of {name} is not linear in that of the output, as if a Function clipped it, and "
                    "codes need derivatives; use clip_norm of the weight rule (nothing was changed)"
                )
    grads = dict(zip(names, found, strict=True))
    buffers = {name.removeprefix("model."): b for name, b in saved.by.buffers.items()}
    return Pass(output, blocks.delta, buffers, grads, saved.by.rng is not None)


def _compare(blocks: Pass, whole: Pass, decays: bool) -> None:
    """ValueError unless both are equal up to rounding."""
    near, _ = NEAR[whole.delta.dtype]
    if blocks.output.shape != whole.output.shape or _distance(blocks.output, whole.output) > near * _norm(whole.output):
        if not whole.drew:
            raise _differs("output")
        return
    for name, b in whole.buffers.items():
        if not torch.allclose(blocks.buffers[name].double(), b.double(), near, SMALL, equal_nan=True):
            raise _differs(f"buffer {name!r}", " after a pass")
    if blocks.grads is None:
        return
    assert whole.grads is not None
    bound = _bound(list(whole.grads.values()))
    for name, g in whole.grads.items():
        own = blocks.grads.get(name)
        if g is None and own is not None and decays:
            raise ValueError(
                f"{name} has no gradient: torch's optimizers would leave it, weight decay or l1 would move it here; "
                "freeze it with requires_grad_(False), or train without these (nothing was changed)"
            )
        if _distance(own, g) > near * _norm(g) + bound:
            raise _differs(f"gradient of {name!r}", f" (norm {_norm(own):.3g} instead of {_norm(g):.3g})")


def _differs(what: str, how: str = "") -> ValueError:
    return ValueError(
        f"the blocks of this model do not compute what a call of it does: its {what} differs{how}; put the part around "
        "it into a module that is never opened, because it has a forward hook "
        "(module.register_forward_hook(lambda *_: None)); AltMin(..., check=False) trains it as it is (nothing was "
        "changed)"
    )


def _bound(grads: Sequence[Tensor | None]) -> float:
    """How far gradients may be apart, whatever their norm."""
    return max((NEAR[g.dtype][1] * _norm(g) for g in grads if g is not None), default=0.0)


def _norm(t: Tensor | None) -> float:
    if t is None:
        return 0.0
    return float(torch.linalg.vector_norm((t.coalesce().values() if t.is_sparse else t).double()))


def _distance(a: Tensor | None, b: Tensor | None) -> float:
    if a is None or b is None:
        return max(_norm(a), _norm(b))
    if a.is_sparse != b.is_sparse:
        a, b = a.to_dense(), b.to_dense()
    return _norm(a.double() - b.double())


@contextmanager
def _in_a_sentence() -> Iterator[None]:
    """Errors of autograd as a ValueError."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise ValueError(f"autograd cannot differentiate the model: {str(error).splitlines()[0]}") from error


@contextmanager
def _random_state(x: Batch) -> Iterator[None]:
    """The state of the random numbers is then as before."""
    with torch.random.fork_rng([x.device] if x.device.type == "cuda" else []):
        yield


@contextmanager
def _same_attributes(model: nn.Module) -> Iterator[None]:
    """Restores the attributes of modules, and lists among them. ValueError if a number has changed."""
    held = [(vars(m), dict(vars(m))) for m in model.modules()]
    lists = [(each, each.copy()) for _, before in held for each in before.values() if type(each) is list]
    changed: list[str] = []
    try:
        yield
    finally:
        for now, before in held:
            numbers = [name for name, value in before.items() if type(value) in (int, float)]
            changed += [name for name in numbers if now.get(name) is not before[name]]
            now.clear()
            now.update(before)
        for each, items in lists:
            each[:] = items
    if changed:
        raise ValueError(
            f"a forward of the model changes the attribute {changed[0]!r}, and a step calls it several times or never; "
            "use a buffer, which changes once in a step (register_buffer)"
        )


@contextmanager
def _restored_buffers(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Within, copies of the buffers by name, which they then have again."""
    held = dict(model.named_buffers())
    before = {name: b.clone() for name, b in held.items()}
    try:
        yield before
    finally:
        for name, b in held.items():
            b.copy_(before[name])


@contextmanager
def _same_buffers(model: nn.Module) -> Iterator[None]:
    """Restores the buffers. ValueError if one has changed: a pass changes copies of them, its gradients should none."""
    changed: list[str] = []
    with _restored_buffers(model) as before:
        yield
        changed = [name for name, b in model.named_buffers() if not _equal(b, before[name])]
    if changed:
        raise ValueError(
            f"the buffer {changed[0]!r} changes when gradients are taken, as if a checkpoint called a module again; "
            "take the change out of what is called again (nothing was changed)"
        )


def _equal(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a, b) or bool(((a == b) | (a != a) & (b != b)).all())


@contextmanager
def _without_dropout(model: nn.Module) -> Iterator[None]:
    on = [m for m in model.modules() if isinstance(m, nn.modules.dropout._DropoutNd) and m.training]
    try:
        for m in on:
            m.training = False
        yield
    finally:
        for m in on:
            m.training = True
