"""Encoding, and the code update (Algorithm 2): from the top down, each code gives way to the term above it.

A code is kept as its offset d from the value it was encoded with, and every term as a function of offsets, so that
the small moves of a deep network are not lost in the rounding of large codes. See linesearch.py for the terms.
"""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from altmin.calculus import Params, Saved
from altmin.chain import Block, Chain, State, Theta
from altmin.codes.linesearch import Above, FitAbove, Line, LossAbove, Move, Mu, column, each
from altmin.fusing import fusible, fusible_alone
from altmin.objective import Evaluation, dot


class Trace(NamedTuple):
    """A forward pass: what each block gave (the codes and, last, the output) and what it remembers."""

    values: list[Tensor]
    states: list[State]


class Local(NamedTuple):
    """What one block is left with once the codes are set: its own small problem.

    core is what its core remembers at its new input; above the term that it serves, the loss or the fit to its own
    code; at that term's value now: `at.force` is the residual c - W a of a hidden block and, for the output block,
    minus the gradient of the loss summed over samples. Where `above.spared` is not None, a sample's residual is that
    part of its force: `plain` has it multiplied out.
    """

    core: list[Saved]
    above: Above
    at: Evaluation

    @property
    def size(self) -> int | None:
        """Entries of a hidden block's code; None for the output block, which has none."""
        force = self.at.force
        return force.numel() // force.shape[0] if isinstance(self.above, FitAbove) else None

    def plain(self) -> "Local":
        """The same with every force cut to its share."""
        if self.above.spared is None:
            return self
        force, above = each(self.above.spared, self.at.force), self.above.plain()
        return Local(self.core, above, Evaluation(force, self.above.weigh(self.at.values), force, None))

    def after(self, change: Tensor, core: list[Saved]) -> "Local":
        """The same problem once new weights have changed the block's output, and what its core remembers."""
        return self._replace(at=self.above.shift(self.at, change), core=core)


def encode(chain: Chain, theta: Theta, x: Tensor) -> Trace:
    """The forward pass: every code gets its linear value."""
    values, states = [x], []
    for l, (block, p) in enumerate(zip(chain, theta, strict=True)):
        try:
            value, state = block.forward(p, values[-1])
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise ValueError(
                f"block {l} ({block}) cannot take its input: {block.misfit(values[-1])} ({error})"
            ) from None
        values.append(value)
        states.append(state)
    return Trace(values[1:], states)


def magnify(above: Above) -> Above:
    """An offset that has shrunk to nothing on its way down, brought back to a size whose square is still a number.

    So small, it is in the linear range of every block below: all that follows from it is magnified with it.
    """
    if not isinstance(above, FitAbove) or not above.shrinks:
        return above
    t, tt, scale, spared = _magnified(above.start.force, above.start.values, above.scale, above.spared)
    return FitAbove(t, tt, scale, None, above.doubts, spared)


@fusible_alone
def _magnified(t: Tensor, tt: Tensor, scale: Mu, spared: Tensor | None) -> tuple[Tensor, Tensor, Mu, Tensor | None]:
    tiny, entries = torch.finfo(t.dtype).tiny, t.numel() // t.shape[0]
    factor = (1e-6 / (tt.mean() / entries + tiny) ** 0.5).clamp_min(1)  # bounded, so that nothing times it is nothing
    t, scale = t * factor, scale * factor
    if spared is not None:
        largest = spared.max().clamp_min(tiny)
        scale, spared = scale / largest, spared / largest
    return t, dot(t, t), scale, spared  # the squares may have been too small to be numbers


def settle(
    block: Block, state: State, above: Above, u: Tensor, uu: Tensor, dy: Tensor, cut: bool
) -> tuple[Local, Above]:
    """The code below a straight block, once it is known where its longest step u leads: to dy. cut: to its share at
    once, as pays where nothing is left below to wait for it and u has fewer entries than the code."""
    share, after = above.share(u, uu, dy)
    spared, core = _go(state.input, u, share, above.spared, above.scale)
    if cut:
        t = block.spread(state, each(spared, u))
        asks = FitAbove(t, spared.square() * uu, above.scale, doubts=above.doubts)
    else:
        asks = FitAbove(block.spread(state, u), uu, above.scale, doubts=above.doubts, spared=spared)
    return Local([core], above.served(), after), asks


@fusible
def _go(x: Tensor, u: Tensor, share: Tensor, spared: Tensor | None, scale: Mu) -> tuple[Tensor, Tensor]:
    """The part of the longest steps that is left, and x moved on by that part of u."""
    spared = share if spared is None else spared * share
    return spared, torch.addcmul(x, column(spared / scale if isinstance(scale, Tensor) else spared, u), u)


class GivesWay(Protocol):
    """How the code below block l, the last that the trace still holds, gives way to the term above it."""

    def give_way(
        self, chain: Chain, theta: Theta, trace: Trace, l: int, above: Above, mu: Mu
    ) -> tuple[Local, Above]: ...


def top_down(solver: GivesWay, chain: Chain, theta: Theta, trace: Trace, top: LossAbove, mu: Mu) -> list[Local]:
    """Every code in turn, from the last to the first.

    The trace is used up on the way, so that memory is let go of as soon as it has served.
    """
    problems: list[Local] = []
    above: Above = top
    trace.values.pop()
    for l in range(len(chain) - 1, 0, -1):
        problem, above = solver.give_way(chain, theta, trace, l, above, mu)
        problems.append(problem)
        above = magnify(above) if (len(chain) - l) % 8 == 0 else above
    problems.append(Local(trace.states[0].core, above, above.start))
    return problems[::-1]


class GradientCodes:
    """Gradient steps on each code.

    steps: how many, at most. lr: "exact" for the best step of each sample along its gradient, or a number for the
    paper's fixed step. momentum: of the steps on one code. tolerance: stop a code's steps once they lower its
    objective by less than this fraction. l1: weight of |c|_1 in f, by a proximal step.

    With lr="exact" no sample's objective ever rises: a step that would raise it is halved, and at last not taken.
    """

    def __init__(
        self,
        steps: int = 1,
        lr: float | str = "exact",
        momentum: float = 0.0,
        tolerance: float = 0.0,
        l1: float = 0.0,
    ):
        if lr != "exact" and (isinstance(lr, str) or not lr > 0):
            raise ValueError(f'the code step lr is "exact" or a number above zero, given {lr!r}')
        for name, value, low in (("steps", steps, 1), ("momentum", momentum, 0), ("tolerance", tolerance, 0)):
            if not value >= low:
                raise ValueError(f"{name} of GradientCodes must be at least {low}, given {value!r}")
        if not l1 >= 0:
            raise ValueError(f"l1 of GradientCodes must be at least 0, given {l1!r}")
        self.steps, self.momentum, self.tolerance, self.l1 = steps, momentum, tolerance, l1
        self.lr: Any = lr

    def __repr__(self) -> str:
        return f"GradientCodes(steps={self.steps}, lr={self.lr!r}, momentum={self.momentum}, l1={self.l1})"

    def __call__(self, chain: Chain, theta: Theta, trace: Trace, top: LossAbove, mu: Mu) -> list[Local]:
        """Moves the codes from the last to the first; returns every block's local problem, first to last."""
        return top_down(self, chain, theta, trace, top, mu)

    def give_way(self, chain: Chain, theta: Theta, trace: Trace, l: int, above: Above, mu: Mu) -> tuple[Local, Above]:
        """Moves the code below block l: what the block is left with, and what the code asks of the block below."""
        block, p, l1 = chain.blocks[l], theta[l], self.l1 * above.price / mu if self.l1 else None
        state, code = trace.states.pop(), trace.values.pop()
        if not self.glides(block, above, l1):
            move = self.descend(block, p, state, code, above.plain(), l1)
            asks = FitAbove(move.offset, move.square, above.scale, doubts=above.doubts)
            return Local(move.core, above.served(), move.after), asks
        u, uu = above.longest(block, p, state)
        dy = block.core.maps[0].push(p, state.input, u)
        return settle(block, state, above, u, uu, dy, cut=l == 1 and u.numel() < code.numel())

    def glides(self, block: Block, above: Above, l1: Mu | None) -> bool:
        """Whether one exact step is asked for and has its closed form."""
        return self.lr == "exact" and self.steps == 1 and block.straight and l1 is None and above.glides

    def descend(self, block: Block, p: Params, state: State, code: Tensor, above: Above, l1: Mu | None = None) -> Move:
        """Lowers above(dF(d)) + price |d|^2 + l1 |c + d|_1 over the offset d of one code, from d = 0."""
        exact, still = self.lr == "exact", isinstance(self.momentum, float | int) and not self.momentum
        so_far, v = None, None
        for left in reversed(range(self.steps)):
            line = Line(block, p, state, code, above, so_far, l1)
            v = line.g if v is None or still else line.g + self.momentum * v
            so_far = above.best(line, v) if exact else line.go(v.new_ones(1) * self.lr, v)
            if left == 0 or (self.tolerance and self._settled(line, so_far)):
                break
            state = block.move(p, state, so_far.offset if line.d is None else so_far.offset - line.d)[1]
        assert so_far is not None
        return so_far

    def _settled(self, line: Line, move: Move) -> bool:
        before, after = line.value(line.now, line.d).sum(), line.value(move.after, move.offset).sum()
        return bool(before - after <= self.tolerance * before.abs())
