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
from altmin.calculus.context import LOCAL, Context
from altmin.common.inputs import Batch, tensors_of
from altmin.common.state import zero_if_finite
from altmin.core.chain import Block, Chain, State, Theta
from altmin.core.codes.problem import Encoded, Moved, OutputLoss, Problem, Target
from altmin.core.losses import Loss
from altmin.core.reweighted import of_batch


@runtime_checkable
class CodeSolver(Protocol):
    """Solver that moves the codes below blocks that follow each other, given from the first to the last, and what lies
    above them.

    A solver that keeps state between mini-batches has a function `init(chain)`, which returns the initial state of
    every block: tensors in lists, tuples and dicts. The solver gets them as `solver_state` of each block and returns
    the next ones, of the same form, as `Moved.solver_states`. Runners keep, save and load them.
    """

    def __call__(self, encoded: Sequence[Encoded], target: Target, context: Context) -> Moved: ...


class Outcome(NamedTuple):
    """Mini-batch whose codes have moved.

    loss: the mean loss of the encoded batch, without dimensions. problems, costs, squares: for every block, as in
    `Moved`. objective: f over the number of samples. checked: not finite if the input, the batch norm statistics or the
    solver's state are not. statistics: the next batch norm statistics. solver_states: the next states of the solver.
    """

    loss: Tensor
    problems: list[Problem]
    costs: list[Any]
    squares: list[Any]
    objective: Any
    checked: Tensor
    statistics: list[tuple[Map, Saved]]
    solver_states: Sequence[Any] = ()

    @property
    def is_finite(self) -> Tensor:
        """True if input, loss and objective are finite."""
        return (self.objective + zero_if_finite(self.checked) + zero_if_finite(self.loss)).isfinite()


def encode(blocks: Sequence[Block], theta: Theta, x: Batch, context: Context) -> tuple[list[Tensor], list[State]]:
    """Take the forward pass: every code gets its linear value. Return x, or the first of several inputs, the output of
    every block, and the blocks' states. ValueError if a block cannot take its input."""
    values, states = [x if isinstance(x, Tensor) else blocks[0].begin(x)], []
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
            types = _types(x, theta) if "type" in words else ""
            raise ValueError(f"{what} of shape {tuple(values[-1].shape)}: {words}{types}") from None
        values.append(value)
        states.append(state)
    return values, states


def _types(x: Batch, theta: Theta) -> str:
    """Return the types of a mini-batch and of the parameters for a message."""
    params, batch = ({str(t.dtype) for t in tensors} for tensors in ((p for ps in theta for p in ps), tensors_of(x)))
    types = f"the inputs are {', '.join(sorted(batch))}, the parameters {', '.join(sorted(params))}"
    return (
        f" ({types}); give an embedding integers, x.long(), and other modules the parameters' type, as x.float() does"
    )


def statistics(blocks: Sequence[Block], states: Sequence[State]) -> list[tuple[Map, Saved]]:
    """Return the next values of buffers, such as batch norm statistics, after a forward pass."""
    return [
        pair for block, state in zip(blocks, states, strict=True) if block.keeps for pair in block.statistics(state)
    ]


def move_codes(
    chain: Chain,
    theta: Theta,
    codes: CodeSolver,
    loss: Loss,
    x: Batch,
    y: Tensor,
    mu: Any,
    context: Context = LOCAL,
) -> Outcome:
    """Encode a mini-batch and move its codes; nothing of the model changes."""
    values, states = encode(chain.blocks, theta, x, context)
    alone = context.weights is None and context.shard is None
    top = OutputLoss(loss if alone else of_batch(loss, context), values[-1], y, mu, context)
    encoded: list[Encoded] = []
    for block, p, c, saved in zip(chain.blocks, theta, values[:-1], states, strict=True):
        encoded.append(Encoded(block, p, c, saved, len(encoded) > 0))
    moved = codes(encoded, Target(top.delta, 1.0, top), context)
    new = statistics(chain.blocks, states) if chain.keeps else []
    first = values[1] if chain.shows_input and values[0].numel() >= values[1].numel() else values[0]
    checked = first.sum()
    for t in pytree.tree_leaves(moved.solver_states) if moved.solver_states else ():
        checked = checked + zero_if_finite(t)
    for m, what in new:
        for t in m.checked(what):
            checked = checked + zero_if_finite(t)
    f = moved.costs[-1] + mu / top.samples * sum(moved.costs[:-1])
    return Outcome(top.value, moved.problems, moved.costs, moved.squares, f, checked, new, moved.solver_states)


def with_states(codes: CodeSolver, states: Sequence[Any]) -> CodeSolver:
    """Return a code solver that finds these states, one for each block; itself if there are none."""
    if not states:
        return codes

    def solver(encoded: Sequence[Encoded], target: Target, context: Context) -> Moved:
        pairs = zip(encoded, states, strict=True)
        return codes([block._replace(solver_state=state) for block, state in pairs], target, context)

    return solver


def soft_threshold(p: Tensor, threshold: Any) -> Tensor:
    """Return the proximal step of threshold * |p|_1.

    >>> import torch
    >>> soft_threshold(torch.tensor([-3.0, 0.5]), 1.0)
    tensor([-2.,  0.])
    """
    return p.sign() * (p.abs() - threshold).clamp_min(0)
