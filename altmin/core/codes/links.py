"""What lies above a code, how the code below a block moves, and the problem that remains for the block's weights.

The letters are those of `codes/gradient.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from altmin.calculus import Params, Saved
from altmin.calculus.base import SMALLEST
from altmin.calculus.context import Context
from altmin.calculus.numbers import TINY
from altmin.core.chain import Block, State, Theta
from altmin.core.losses import Evaluation, Loss


class Segment(NamedTuple):
    """Consecutive blocks of a chain after a forward pass. inputs, states: for each block its input, and what its
    modules have saved. begins: whether the first one is the chain's first, whose input is not a code. solver_states:
    for each block the state that the code solver keeps between mini-batches, if it has an `init`."""

    blocks: Sequence[Block]
    theta: Theta
    inputs: Sequence[Tensor]
    states: Sequence[State]
    context: Context
    begins: bool = True
    solver_states: Sequence[Any] = ()

    def part(self, first: int, end: int) -> "Segment":
        """The blocks first, ..., end - 1."""
        cut = slice(first, end)
        blocks, theta, inputs, states, context, begins, kept = self
        return Segment(blocks[cut], theta[cut], inputs[cut], states[cut], context, begins and first == 0, kept[cut])


class OutputLoss:
    """The loss above the last code, at the encoded output. ValueError if the targets do not fit the output.

    value, start: the loss there, on its device, and with its derivatives. delta: its gradient, of the mean loss.
    samples: the factor of the mean in f. price: kappa = 2 mu / samples. scale, longest, offset, offset_square:
    as in `Upstream`; the output itself has not moved.
    """

    def __init__(self, loss: Loss, output: Tensor, y: Tensor, mu: Any, context: Context):
        if output.ndim == 0 or len(output) == 0:
            raise ValueError(
                f"the model gives an output of shape {tuple(output.shape)}, one for each sample is expected"
            )
        self.loss, self.output = loss, output
        self.y = loss.prepare(output, y, context)
        self.context = context
        start = loss.at(output, self.y)
        self.value = start.value
        self.start = start._replace(value=context.host(start.value)) if start.value.is_cuda else start
        self.delta = self.start.delta
        self.samples = loss.samples(output)
        self.price = 2 * mu / self.samples
        self.scale = self.longest = torch.ones_like(self.start.value)
        self.offset, self.offset_square = self.delta, torch.zeros_like(self.start.value)

    def at(self, output: Tensor) -> Evaluation:
        """The loss at another output."""
        found = self.loss.at(output, self.y)
        return found._replace(value=self.context.host(found.value)) if found.value.is_cuda else found

    def curved(self, q: Tensor, Hq: Tensor, share: Any) -> Tensor:
        """H q as it bounds a length. Where the loss is linear that would be no bound: there it is (1 - share) times
        that of half the mean squared error, q / samples, so that moves vanish with the share and a share of 1 is free.
        """
        if self.loss.curves:
            return Hq
        return torch.where((Hq == 0) & (self.delta != 0), (1 - share) / self.samples * q, Hq)

    def problem(self, saved: list[Saved], at: Evaluation, output: Tensor, context: Context) -> "LocalProblem":
        """The problem of the output block, whose output is now `output`."""

        def after(change: Tensor) -> Tensor:
            return self.loss.at(output + change, self.y).delta

        return LocalProblem(saved, at.delta, self.delta, after, self.scale, context)


class Upstream(NamedTuple):
    """The target that the code above sets for a block: to move its output by -scale * delta.

    scale: the product of the lengths of all codes above. longest: a bound on it that is known without their
    jvps. offset: the code itself has moved by -scale * offset, which is delta up to the kinks of the block above.
    offset_square: |offset|^2.
    """

    delta: Tensor
    scale: Tensor
    longest: Tensor
    offset: Tensor
    offset_square: Tensor


Above = OutputLoss | Upstream


class LocalProblem(NamedTuple):
    """The problem of one block's weights once the codes are set.

    saved: what the modules of its core have saved at the moved input. delta: the gradient at its output, from which
    `core.grads(p, saved, delta)` is that of its parameters. upstream: the gradient that reached the output, before the
    code below moved. after(change): delta once new parameters have changed the output. scale: c - W a is
    -scale * delta in a hidden block.
    """

    saved: list[Saved]
    delta: Tensor
    upstream: Tensor
    after: Callable[[Tensor], Tensor]
    scale: Tensor
    context: Context

    def grads(self, block: Block, p: Params) -> Params:
        """The gradient of the block's parameters p, with samples weighted."""
        delta = self.delta if self.context.weights is None else self.context.weighted(self.delta)
        maps = block.core.maps
        return maps[0].grads(p, self.saved[0], delta) if len(maps) == 1 else block.core.grads(p, self.saved, delta)


def hidden_problem(
    saved: list[Saved], delta: Tensor, upstream: Tensor, scale: Tensor, context: Context
) -> LocalProblem:
    """The problem of a hidden block, whose target is a move by -scale * upstream; delta is the part that remains."""

    def after(change: Tensor) -> Tensor:
        # for a code that has not moved only delta is known
        return delta + torch.where(scale > SMALLEST, 1 / scale.clamp_min(SMALLEST), 0.0) * change

    return LocalProblem(saved, delta, upstream, after, scale, context)


class Moves(NamedTuple):
    """A segment whose codes have moved.

    problems: one for every block. costs: |c - W a|^2 for every block, the mean loss for the output block. moved:
    for every block the squared norm of its code's offset from the encoded value; 0 for the output block, which has no
    code. All from the first block to the last; costs and moved are columns (`calculus.numbers`). below: the target that
    the code below the first block sets for the block below it. solver_states: the next states for every block, if the
    solver has any.
    """

    problems: list[LocalProblem]
    costs: Any
    moved: Any
    below: Upstream | None
    solver_states: Sequence[Any] = ()


def joined(parts: Sequence[Moves]) -> Moves:
    """Segments that follow each other from the top down, as one."""
    up = list(reversed(parts))
    problems = [problem for part in up for problem in part.problems]
    numbers = problems[0].context.numbers
    costs, moved = (
        numbers.column(numbers.join(*each)) for each in zip(*((part.costs, part.moved) for part in up), strict=True)
    )
    return Moves(problems, costs, moved, parts[-1].below, [state for part in up for state in part.solver_states])


def unmoved(segment: Segment, above: Above) -> Moves:
    """One block whose input stays as it is, such as the chain's first."""
    saved, context = segment.states[0].core, segment.context
    if isinstance(above, OutputLoss):
        problem, value = above.problem(saved, above.start, above.output, context), above.start.value.view(1)
        return Moves([problem], context.numbers.read(value), context.numbers.read(torch.zeros_like(value)), None)
    problem = hidden_problem(saved, above.delta, above.delta, above.scale, context)
    square = context.numbers.read((above.scale * above.scale * above.offset_square).view(1))
    return Moves([problem], square, square, None)


class Link:
    """The code below a block, and how it moves: its direction, and how the block maps it.

    g: J^T delta. below: g at the code. u: the direction of the move, here g. offset: u at the code. q: J u, once
    `follow` was called. exact: whether the block is linear along the whole move, so that Q = q and no step along u can
    raise f. checked: whether a step that raises f is rejected.
    """

    exact = False
    checked = True

    def __init__(self, block: Block, p: Params, state: State, code: Tensor, delta: Tensor):
        self.block, self.p, self.state, self.code, self.delta = block, p, state, code, delta
        self.g = self.u = self.below = self.offset = block.vjp(p, state, delta)
        self.q = delta

    def follow(self, longest: Tensor) -> None:
        """Chooses u and computes q = J u, for moves of the code by at most longest * u."""
        if self.block.rectified and self.block.piecewise_linear and not self.block.spreads:
            self.q = self.block.core.maps[0].jvp(self.p, self.state.core[0], self.u)  # g is 0 where rectifiers are 0
        else:
            self.q = self.block.jvp(self.p, self.state, self.u)

    def move(self, e: Tensor) -> tuple[Tensor, State]:
        """(F(c) - F(c - e u)) / e, and the block's state at c - e u."""
        return self.block.quotient(self.p, self.state, self.u, e, self.q)

    def output(self, e: Tensor, output: Tensor, context: Context) -> tuple[Tensor, State]:
        """F(c - e u), and the block's state there; output: F(c)."""
        moved = torch.addcmul(self.code, self.u, e, value=-1)
        if self.block.replays:
            return self.block.replay(self.p, self.state, moved)
        return self.block.forward(self.p, moved, context)


class PiecewiseLinearLink(Link):
    """The code below a piecewise linear block: u is g stopped at the kinks, so that the block is linear along u, and a
    step needs no second product. It computes at the input of the core (see `Block.piecewise_linear`)."""

    exact = True

    def __init__(self, block: Block, p: Params, state: State, code: Tensor, delta: Tensor):
        self.block, self.p, self.state, self.code, self.delta = block, p, state, code, delta
        self.layer, self.x = block.core.maps[0], state.core[0]
        g = self.layer.vjp(p, self.x, delta)
        self.g = self.u = torch.ops.aten.threshold_backward(g, self.x, 0) if block.rectified else g
        self.below = block.spread(state, self.g) if block.spreads else self.g
        self.q = delta
        self.spread: Tensor | None = None

    @property
    def offset(self) -> Tensor:  # type: ignore[override]
        if self.block.spreads and self.spread is None:
            self.spread = self.block.spread(self.state, self.u)
        return self.u if self.spread is None else self.spread

    def follow(self, longest: Tensor) -> None:
        distance = self.block.kink_distance(self.state)
        if distance is not None:
            self.u = self.g.minimum(distance / longest.clamp_min(TINY))
        self.q = self.layer.jvp(self.p, self.x, self.u)

    def move(self, e: Tensor) -> tuple[Tensor, State]:
        return self.q, State(self.state.prelude, [torch.addcmul(self.x, self.u, e, value=-1)])


class EstimatedLink(Link):
    """The code below a discrete activation with an estimate of its derivative: a step is chosen by the estimate and
    cannot be checked by it. The block keeps its values and its whole target."""

    checked = False

    def move(self, e: Tensor) -> tuple[Tensor, State]:
        return torch.zeros_like(self.q), self.state

    def output(self, e: Tensor, output: Tensor, context: Context) -> tuple[Tensor, State]:
        return output, self.state
