"""A block at a mini-batch, what lies above it, and the problem that is left for its weights once codes have moved.

The letters are those of `codes/gradient.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from altmin.calculus import Params, Saved
from altmin.calculus.context import Context
from altmin.core.chain import Block, State
from altmin.core.losses import Evaluation, Loss

SMALLEST = 1e-15
"""A code that has moved by a smaller factor counts as one that has not moved."""


class Encoded(NamedTuple):
    """A block at the input with which it was encoded.

    p: its parameters. saved: what its modules have saved. is_code: whether the input is a code, which may move; that of
    a chain's first block is not. solver_state: what the code solver keeps between mini-batches, if it has an `init`.
    """

    block: Block
    p: Params
    input: Tensor
    saved: State
    is_code: bool = True
    solver_state: Any = None


class OutputLoss:
    """The mean loss above the last block. ValueError if the targets do not fit the output.

    value, delta, hessian: at the encoded output. samples: the factor of the mean in f. price: kappa = 2 mu / samples.
    """

    def __init__(self, loss: Loss, output: Tensor, y: Tensor, mu: Any, context: Context):
        if output.ndim == 0 or len(output) == 0:
            raise ValueError(
                f"the model gives an output of shape {tuple(output.shape)}, one for each sample is expected"
            )
        self.loss, self.output = loss, output
        self.y = loss.prepare(output, y, context)
        self.value, self.delta, self.hessian = loss.at(output, self.y)
        self.samples = loss.samples(output)
        self.price = 2 * mu / self.samples

    def at(self, output: Tensor) -> Evaluation:
        """Return the loss at another output."""
        return self.loss.at(output, self.y)

    def curved(self, q: Tensor, Hq: Tensor, share: Any) -> Tensor:
        """Return H q as it bounds a length. Where the loss is linear that would be no bound: there it is (1 - share)
        times that of half the mean squared error, q / samples, so that moves vanish with the share and a share of 1 is
        free."""
        return torch.where((Hq == 0) & (self.delta != 0), (1 - share) / self.samples * q, Hq)


class Target(NamedTuple):
    """Target of a block: its output is to move by -scale * delta.

    scale: the product of the lengths of all codes above, a number as `Context.numbers` has it. loss: the loss, where it
    lies directly above; its scale is 1.
    """

    delta: Tensor
    scale: Any
    loss: OutputLoss | None = None


class Problem(NamedTuple):
    """The problem of one block's weights once the codes are set.

    block: in the form in which it was encoded. saved: what the modules of its core have saved. delta: the residual r at
    its output, from which `core.grads(p, saved, delta)` is the gradient of its parameters. upstream: the gradient that
    reached the output, before the code below moved. scale: c - W a is -scale * delta in a hidden block. at: of the
    output block, the loss's gradient as a function of a change of its output.
    """

    block: Block
    saved: list[Saved]
    delta: Tensor
    upstream: Tensor
    scale: Any
    context: Context
    at: Callable[[Tensor], Tensor] | None = None

    def after(self, old: Params, new: Params) -> "Problem":
        """Return the problem, which was measured with the old parameters, for new ones."""
        change, saved = self.block.core.change(old, new, self.saved)
        if self.at is not None:
            return self._replace(saved=saved, delta=self.at(change))
        # of a code that has not moved only delta is known
        scale = torch.as_tensor(self.scale, dtype=torch.float64)
        pull = torch.where(scale > SMALLEST, 1 / scale.clamp_min(SMALLEST), 0.0).to(change)
        return self._replace(saved=saved, delta=self.delta + pull * change)


class Moved(NamedTuple):
    """Blocks that follow each other, once their codes have moved; from the first block to the last.

    problems: of every block. costs: |c - W a|^2 of every block, the mean loss for the output block. squares: how far
    every block's code has moved from the value that the block gives it, squared; 0 for the output block, which has no
    code. Both are lists of numbers (`Context.numbers`). below: the target of the block below the first one, None if
    that is the chain's first. solver_states: the next state of every block, if the solver has any.
    """

    problems: list[Problem]
    costs: list[Any]
    squares: list[Any]
    below: Target | None = None
    solver_states: Sequence[Any] = ()


def joined(parts: Sequence[Moved]) -> Moved:
    """Return groups of blocks, from the top down, as one."""
    up = parts[::-1]
    names = ("problems", "costs", "squares", "solver_states")
    lists = {name: [item for part in up for item in getattr(part, name)] for name in names}
    return Moved(**lists, below=parts[-1].below)


def unmoved(encoded: Encoded, target: Target, context: Context) -> Moved:
    """Return one block whose input stays as it is, such as the chain's first."""
    top = target.loss
    return at_residual(encoded, target, context) if top is None else at_output(encoded, target, top.output, context)


def at_output(encoded: Encoded, target: Target, output: Tensor, context: Context) -> Moved:
    """Return the output block with this output."""
    top = target.loss
    assert top is not None
    value, r, _ = top.at(output)
    gradient = lambda change: top.at(output + change).delta  # noqa: E731
    problem = Problem(encoded.block, encoded.saved.core, r, target.delta, target.scale, context, gradient)
    (cost,) = context.numbers(value.view(1))
    return Moved([problem], [cost], [0 * cost])


def at_residual(encoded: Encoded, target: Target, context: Context, r: Tensor | None = None) -> Moved:
    """Return a hidden block with the residual r, None for all of its target."""
    scale, delta = target.scale, target.delta
    r = delta if r is None else r
    cost, square = (scale * scale * t for t in context.numbers(context.inners([(r, r), (delta, delta)])))
    return Moved([Problem(encoded.block, encoded.saved.core, r, delta, scale, context)], [cost], [square])
