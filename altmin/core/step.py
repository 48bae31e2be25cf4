"""One mini-batch as functions without state: encode, move the codes, check the outcome.

Every runner (the trainer, an ensemble, a captured step, ranks) calls these; they differ in the `Context` that they pass
and in where they keep the state.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from altmin.calculus import Map, Saved
from altmin.calculus.context import Context
from altmin.common.inputs import Batch
from altmin.core.chain import Block, Chain, State, Theta
from altmin.core.codes.links import Above, LocalProblem, Moves, OutputLoss, Segment
from altmin.core.losses import Loss
from altmin.core.reweighted import of_batch


@runtime_checkable
class CodeSolver(Protocol):
    """Moves the codes below the blocks of a segment, from the last to the first, given what lies above it.

    A solver that keeps state between mini-batches has a function `init(chain)`, which returns the initial state of
    every block: tensors in lists, tuples and dicts. The solver gets them as `segment.solver_states` and returns the
    next ones, of the same form, as `Moves.solver_states`. Runners keep, save and load them.
    """

    def __call__(self, segment: Segment, above: Above) -> Moves: ...


class Moved(NamedTuple):
    """A mini-batch whose codes have moved.

    loss: the mean loss of the encoded batch, without dimensions. problems: the weight problem of every block.
    costs, moved: for every block, as in `Moves`. objective: f over the number of samples. checked: not finite if
    the input, the batch norm statistics or the solver's state are not. statistics: the next batch norm statistics.
    solver_states: the next states of the solver.
    """

    loss: Tensor
    problems: list[LocalProblem]
    costs: Any
    moved: Any
    objective: Any
    checked: Tensor
    statistics: list[tuple[Map, Saved]]
    solver_states: Sequence[Any] = ()

    @property
    def is_finite(self) -> Tensor:
        """Whether input, loss and objective are finite."""
        return (self.objective + 0 * self.checked + 0 * self.loss).isfinite()


def encode(blocks: Sequence[Block], theta: Theta, x: Batch, context: Context) -> tuple[list[Tensor], list[State]]:
    """The forward pass: every code gets its linear value. Returns x, or the first of several inputs, the output of
    every block, and the blocks' states. ValueError if a block cannot take its input."""
    values, states = [blocks[0].begin(x)], []
    for l, block in enumerate(blocks):
        try:
            value, state = block.forward(theta[l], values[-1], context)
        except torch.OutOfMemoryError:
            raise
        except TypeError as error:
            raise ValueError(
                f"block {l} ({block}) fails when its modules are called one by one; if it reads an attribute that "
                "another module sets in its forward, put both into one module, and a forward hook on that "
                "(module.register_forward_hook(lambda *_: None))"
            ) from error
        except (RuntimeError, IndexError, NotImplementedError) as error:
            words, what = str(error).partition("\n")[0], f"block {l} ({block}) cannot take its input"
            raise ValueError(f"{what} of shape {tuple(values[-1].shape)}: {words}") from None
        values.append(value)
        states.append(state)
    return values, states


def statistics(blocks: Sequence[Block], states: Sequence[State]) -> list[tuple[Map, Saved]]:
    """The next values of buffers, such as batch norm statistics, after a forward pass."""
    return [
        kept for block, state in zip(blocks, states, strict=True) if block.keeps for kept in block.statistics(state)
    ]


def move_codes(
    chain: Chain, theta: Theta, codes: CodeSolver, loss: Loss, x: Batch, y: Tensor, mu: Any, context: Context
) -> Moved:
    """Encodes a mini-batch and moves its codes; nothing of the model changes."""
    if context.bf16:
        theta = [block.operands(p) for block, p in zip(chain.blocks, theta, strict=True)]
    values, states = encode(chain.blocks, theta, x, context)
    plain = context.weights is None and context.shard is None
    top = OutputLoss(loss if plain else of_batch(loss, context), values[-1], y, mu, context)
    moves = codes(Segment(chain.blocks, theta, values[:-1], states, context), top)
    kept = statistics(chain.blocks, states) if chain.keeps else []
    first = values[1] if chain.shows_input and values[0].numel() >= values[1].numel() else values[0]
    checked = first.sum()
    for m, what in kept:
        for t in m.checked(what):
            checked = checked + 0 * t.sum()
    for t in pytree.tree_leaves(moves.solver_states) if moves.solver_states else ():
        checked = checked + 0 * t.sum()
    f = moves.costs[-1] + mu / top.samples * context.numbers.sum(moves.costs[:-1])
    return Moved(top.value, moves.problems, moves.costs, moves.moved, f, checked, kept, moves.solver_states)


def soft_threshold(p: Tensor, threshold: Any) -> Tensor:
    """The proximal step of threshold * |p|_1.

    >>> import torch
    >>> soft_threshold(torch.tensor([-3.0, 0.5]), 1.0)
    tensor([-2.,  0.])
    """
    return p.sign() * (p.abs() - threshold).clamp_min(0)
