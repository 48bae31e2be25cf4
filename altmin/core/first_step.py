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
from altmin.common.unchanged import same_attributes, same_buffers
from altmin.core.chain import Chain, Theta
from altmin.core.losses import Loss
from altmin.core.step import encode, statistics

NEAR = {torch.float32: (0.05, 1e-3), torch.float64: (1e-5, 1e-8)}
"""How far tensors may be apart that are equal up to rounding: relative to the norm of the one expected, and relative to
the largest norm of all gradients."""
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


def check_first_step(chain: Chain, loss: Loss, x: Batch, y: Tensor, context: Context) -> None:
    """ValueError unless the blocks of a model have its output, autograd's gradients and the buffers that a call of it
    leaves, for this mini-batch. Nothing changes. context: in which the loss reads its targets; of a rank, the rest is
    computed for its own rows alone.

    Takes two passes and two backward passes, with dropout off. Outputs may differ where the model draws random numbers
    elsewhere. Gradients are not compared where a block replaces a derivative by an estimate or by a part of it
    (discrete activations, recurrence).
    """
    x = x.clone() if any(t.is_inference() for t in tensors_of(x)) else x
    named = {name: p.detach() for name, p in chain.model.named_parameters()}
    opaque = any(block.uses_autograd for block in chain)  # a module that is called may change its parameters
    copies = {name: p.clone() for name, p in named.items()} if opaque else named
    with same_buffers(chain.model), same_attributes(chain.model) as changed:
        for m in chain.model.modules():
            m.training = m.training and not isinstance(m, nn.modules.dropout._DropoutNd)
        with _random_state(x):
            blocks = _by_blocks(chain, copies, loss, x, y, context)
        if not bool(blocks.output.sum().isfinite()):
            return  # the step says where
        with _random_state(x):
            whole = _by_autograd(chain, copies, x, blocks)
    for name, p in named.items() if opaque else ():
        if not torch.equal(copies[name], p):
            raise ValueError(f"the model changes its parameter {name!r} in place in its forward; do that between steps")
    for name, before in changed:
        if type(before) in (int, float):
            raise ValueError(
                f"a forward of the model changes the attribute {name!r}, and a step calls it several times or never; "
                "use a buffer, which changes once in a step (register_buffer)"
            )
    _compare(blocks, whole)


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
    with same_buffers(chain.model):
        for m, kept in statistics(chain.blocks, states):
            m.commit(kept)
        buffers = {name: b.clone() for name, b in chain.model.named_buffers()}
    maps = [m for block in chain for each in block.maps for m in each.inner]
    if chain.recurrent or any(isinstance(m, Discrete | Estimated) for m in maps):
        return Pass(output, delta, buffers, None)
    grads: dict[str, Tensor | None] = {}
    for l, block in reversed(list(enumerate(chain))):
        for name, g in zip(held[l], block.core.grads(theta[l], states[l].core, v), strict=True):
            grads[name] = g if (other := grads.get(name)) is None else other + g  # of all blocks that use it
        v = block.vjp(theta[l], states[l], v) if l else v
    return Pass(output, delta, buffers, grads)


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
    """As the blocks: gradients where these have some."""
    whole = AnyModule(_Whole(chain), several=True)
    held = [name.removeprefix("model.") for name in whole.names]
    output, saved = whole.forward([parameters[name] for name in held], list(tensors_of(x)))
    leaves, end = saved.p, saved.y
    trained = [chain.model.get_parameter(name).requires_grad for name in held]
    names, of = list(itertools.compress(held, trained)), list(itertools.compress(leaves, trained))
    grads: Sequence[Tensor | None] = [None] * len(of)
    if blocks.grads is not None and of and end.requires_grad and end.shape == blocks.delta.shape:
        grads = torch.autograd.grad(end, of, blocks.delta, allow_unused=True)
    buffers = {name.removeprefix("model."): b for name, b in saved.buffers.items()}
    return Pass(output, blocks.delta, buffers, dict(zip(names, grads, strict=True)), saved.rng is not None)


def _compare(blocks: Pass, whole: Pass) -> None:
    """ValueError unless both are equal up to rounding."""
    near, least = NEAR[whole.delta.dtype]
    if blocks.output.shape != whole.output.shape or _distance(blocks.output, whole.output) > near * _norm(whole.output):
        if not whole.drew:
            raise _differs("output")
        return
    for name, b in whole.buffers.items():
        if not torch.allclose(blocks.buffers[name].double(), b.double(), near, SMALL, equal_nan=True):
            raise _differs(f"buffer {name!r} after a pass")
    if blocks.grads is None:
        return
    assert whole.grads is not None
    bound = least * max((_norm(g) for g in whole.grads.values()), default=0.0)
    for name, g in whole.grads.items():
        own = blocks.grads.get(name)
        if _distance(own, g) > near * _norm(g) + bound:
            raise _differs(f"gradient of {name!r} (norm {_norm(own):.3g} instead of {_norm(g):.3g})")


def _differs(what: str) -> ValueError:
    return ValueError(
        f"the blocks of this model do not compute what a call of it does, they differ in the {what}; put the part "
        "around it into a module that is never opened, because it has a forward hook "
        "(module.register_forward_hook(lambda *_: None)); AltMin(..., check=False) trains it as it is (nothing was "
        "changed)"
    )


def _norm(t: Tensor | None) -> float:
    return 0.0 if t is None else float(torch.linalg.vector_norm(t.double()))


def _distance(a: Tensor | None, b: Tensor | None) -> float:
    return max(_norm(a), _norm(b)) if a is None or b is None else _norm(a.double() - b.double())


@contextmanager
def _random_state(x: Batch) -> Iterator[None]:
    """The state of the random numbers is then as before."""
    with torch.random.fork_rng([x.device] if x.device.type == "cuda" else []):
        yield
