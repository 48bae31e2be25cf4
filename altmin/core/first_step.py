"""The check before a trainer's first step: the blocks against the model as a whole, which autograd differentiates."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from altmin.calculus.context import LOCAL, Context
from altmin.calculus.discrete import Discrete, Estimated
from altmin.calculus.other import AnyModule
from altmin.common import precision
from altmin.common.inputs import Batch, tensors_of
from altmin.common.unchanged import same_attributes, same_buffers
from altmin.core.chain import Chain, Theta
from altmin.core.losses import Loss
from altmin.core.step import encode, statistics

NEAR = {torch.float32: (0.05, 1e-3), torch.float64: (1e-5, 1e-8)}
"""Tolerance for tensors that are equal up to rounding: relative to the norm of the one expected, and relative to
the largest norm of all gradients."""
SMALL = 1e-6
"""Absolute tolerance for entries of a buffer."""
_one_thread = threading.Lock()


class Pass(NamedTuple):
    """A forward and a backward pass. delta: the loss's gradient. buffers: as the pass leaves them, by name. grads: of
    the parameters, by name; None if blocks estimate derivatives. drew: whether random numbers were drawn."""

    output: Tensor
    delta: Tensor
    buffers: Mapping[str, Tensor]
    grads: Mapping[str, Tensor] | None
    drew: bool = False


def check_first_step(chain: Chain, loss: Loss, x: Batch, y: Tensor, context: Context) -> None:
    """Raise ValueError unless the blocks have a model's output, autograd's gradients and the buffers that a call of it
    leaves, for this mini-batch. Nothing changes. context: in which the loss reads its targets; of a rank, the rest is
    computed for its own rows alone.

    Takes two passes and two backward passes, with dropout off, and on a GPU without tf32, whose rounding deep nets
    magnify. Outputs may differ where the model draws random numbers elsewhere. Gradients are not compared where a block
    replaces a derivative by an estimate or by a part of it (discrete activations, recurrence).
    """
    x = x.clone() if any(t.is_inference() for t in tensors_of(x)) else x
    copies = {name: p.detach().clone() for name, p in chain.model.named_parameters()}
    devices = [x.device] if x.device.type == "cuda" else []
    exact = _exact() if devices else nullcontext()
    with same_buffers(chain.model), same_attributes(chain.model) as changed, exact:
        for m in chain.model.modules():
            m.training = m.training and not isinstance(m, nn.modules.dropout._DropoutNd)
        with torch.random.fork_rng(devices):
            blocks = _by_blocks(chain, copies, loss, x, y, context)
        if not bool(blocks.output.sum().isfinite()):
            return  # the step says where
        with torch.random.fork_rng(devices):
            whole = _by_autograd(chain, copies, x, blocks)
    for name, p in chain.model.named_parameters():
        if not torch.equal(copies[name], p):
            raise ValueError(f"the model changes its parameter {name!r} in place in its forward; do that between steps")
    for name, before in changed:
        if type(before) in (int, float):
            raise ValueError(
                f"a forward of the model changes the attribute {name!r}, and a step calls it several times or never; "
                "use a buffer, which changes once in a step (register_buffer)"
            )
    _compare(blocks, whole)


@contextmanager
def _exact() -> Iterator[None]:
    """Compute without tf32, which is a setting of the process: one thread at a time."""
    with _one_thread, precision.using("float32"):
        yield


def _by_blocks(
    chain: Chain, parameters: Mapping[str, Tensor], loss: Loss, x: Batch, y: Tensor, context: Context
) -> Pass:
    """Return the pass of the blocks. ValueError for a loss that depends on parameters, or that changes."""
    names = {id(p): name for name, p in chain.model.named_parameters()}
    named = [[names[id(p)] for p in block] for block in chain.parameters()]
    theta: Theta = [[parameters[name] for name in block] for block in named]
    values, states = encode(chain.blocks, theta, x, LOCAL)
    output = values[-1]
    targets = loss.prepare(output, y, context)
    for p in loss.others(output, y):
        raise ValueError(
            f"the loss depends on {names.get(id(p), 'a tensor outside the model')} besides the output, and only the "
            "output is differentiated; use weight_decay or l1 of the weight rule as a penalty (nothing was changed)"
        )
    delta = loss.delta(output, targets)
    grads = _gradients(chain, theta, states, delta, named)  # before buffers change, of which a block may use views
    with same_buffers(chain.model):
        for m, new in statistics(chain.blocks, states):
            m.commit(new)
        buffers = {name: b.clone() for name, b in chain.model.named_buffers()}
    return Pass(output, delta, buffers, grads)


def _gradients(
    chain: Chain, theta: Theta, states: Sequence[Any], v: Tensor, named: Sequence[Sequence[str]]
) -> dict[str, Tensor] | None:
    """Return the gradients of a chain's parameters by name, given that of its output; None if blocks estimate
    derivatives."""
    maps = [inner for block in chain for m in block.maps for inner in m.inner]
    if chain.recurrent or any(isinstance(m, Discrete | Estimated) for m in maps):
        return None
    grads: dict[str, Tensor] = {}
    for l, block in reversed(list(enumerate(chain))):
        try:
            local, below = block.core.grads(theta[l], states[l].core, v), block.vjp(theta[l], states[l], v) if l else v
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise ValueError(f"block {l} ({block}) cannot be differentiated by itself: {error}") from error
        for name, g in zip(named[l], local, strict=True):
            grads[name] = grads[name] + g if name in grads else g  # of all blocks that use it
        v = below
    return grads


class _Whole(nn.Module):
    """A chain's model, called with its inputs by name, with its outputs as one tensor."""

    def __init__(self, chain: Chain):
        super().__init__()
        self.model, self.inputs, self.outputs = chain.model, chain.inputs, chain.outputs

    def forward(self, *inputs: Tensor) -> Any:
        several = len(inputs) > 1
        output = self.model(**dict(zip(self.inputs, inputs, strict=True))) if several else self.model(*inputs)
        return output if self.outputs is None else self.outputs.flat(output)


def _by_autograd(chain: Chain, parameters: Mapping[str, Tensor], x: Batch, blocks: Pass) -> Pass:
    """Return the pass of the model, with gradients where the blocks have some."""
    whole = AnyModule(_Whole(chain), several=True)
    names = [name.removeprefix("model.") for name in whole.names]
    leaves = [parameters[name] for name in names]
    output, saved = whole.forward(leaves, list(tensors_of(x)))
    alike = blocks.grads is not None and output.shape == blocks.output.shape
    grads = dict(zip(names, whole.grads(leaves, saved, blocks.delta), strict=True)) if alike and names else {}
    buffers = {name.removeprefix("model."): b for name, b in saved.buffers.items()}
    return Pass(output, blocks.delta, buffers, grads, saved.rng is not None)


def _compare(blocks: Pass, whole: Pass) -> None:
    """Raise ValueError unless both are equal up to rounding."""
    near, least = NEAR[whole.delta.dtype]
    y, expected = blocks.output, whole.output
    if y.shape != expected.shape or _norm(y - expected) > near * _norm(expected):
        if not whole.drew:
            raise _differs("output")
        return
    for name, b in whole.buffers.items():
        if not torch.allclose(blocks.buffers[name].double(), b.double(), near, SMALL, equal_nan=True):
            raise _differs(f"buffer {name!r} after a pass")
    if blocks.grads is None or whole.grads is None:
        return
    bound = least * max(map(_norm, whole.grads.values()), default=0.0)
    for name, g in whole.grads.items():
        grad = blocks.grads.get(name, torch.zeros_like(g))
        if _norm(grad - g) > near * _norm(g) + bound:
            raise _differs(f"gradient of {name!r} (norm {_norm(grad):.3g} instead of {_norm(g):.3g})")


def _differs(what: str) -> ValueError:
    return ValueError(
        f"the blocks of this model do not compute what a call of it does, they differ in the {what}; put the part "
        "around it into a module with a forward hook (module.register_forward_hook(lambda *_: None)), which is never "
        "opened; AltMin(..., check=False) trains it as it is (nothing was changed)"
    )


def _norm(t: Tensor) -> float:
    return float(torch.linalg.vector_norm(t.double()))
