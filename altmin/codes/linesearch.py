"""How far a code should go: its objective along its gradient, and the step that lowers it most.

A code with offset d from its encoded value c lowers

    above(dF(d)) + price |d|^2 + l1 |c + d|_1,        dF(d) = F(c + d) - F(c),

where F is the block above it and `above` is one of two terms: the loss of the moved output, at the price mu, or the
distance |t - dF(d)|^2 from the offset t that the code above asks for, at the price 1 (its share of f over mu).

Both terms know two ways. For a block that is linear as far as its kinks (`Block.straight`), the common case, `longest`
is a step along the gradient that is certainly long enough, stopped at the kinks; one product tells where it leads, and
`share` how much of it is best. `best` serves every block, along any direction.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from altmin.calculus import Params, Saved, threshold
from altmin.chain import Block, State
from altmin.fusing import fusible
from altmin.objective import AnyLoss, Evaluation, Loss, dot

HALVINGS = 12
Mu = Tensor | float
Step = TypeVar("Step")


class Move(NamedTuple):
    """An offset d of a code and its square, the term above then, and what the core above remembers at its new input."""

    offset: Tensor
    square: Tensor
    after: Evaluation
    core: list[Saved]


class Doubts:
    """Whether a step has raised what it should lower, for all steps of a mini-batch.

    Asking makes the processor wait for a GPU, and the answer is nearly always no. So there the steps are taken as if it
    were, and asked about once, together; should one have risen, the mini-batch is done again, waiting for each answer.
    Many members at once (execution/ensemble.py) cannot wait for one of them: thorough, nobody is asked, and every step
    is halved as often as any could need, where it needs it.
    """

    def __init__(self, wait: bool = True, thorough: bool = False):
        self.wait, self.thorough = wait, thorough
        self.kept: list[Tensor] = []

    def confirmed(self, rose: Tensor) -> bool:
        """Whether any has risen, as far as is known."""
        if self.thorough:
            return True
        if self.wait:
            return bool(rose.any())
        self.kept.append(rose)
        return False

    def found(self) -> Tensor | None:
        """The doubts that were kept, of which any may be true; None if none was kept."""
        kept = [doubt.reshape(-1) for doubt in self.kept]
        return torch.cat(kept) if len(kept) > 1 else kept[0] if kept else None


def halved(
    alpha: Tensor,
    go: Callable[[Tensor], Step],
    rose: Callable[[Step], Tensor],
    doubts: Doubts,
) -> Step:
    """The step `go(alpha)`, halved where it raised the objective until it does not; at last, not taken."""
    for left in reversed(range(HALVINGS)):
        move = go(alpha)
        too_far = rose(move)
        if not doubts.confirmed(too_far):
            break
        alpha = torch.where(too_far, alpha / 2 if left > 1 else 0, alpha)
    return move


class LossAbove:
    """The term above the last code: the loss, as a function of the output's move."""

    scale, spared = 1.0, None

    def __init__(self, loss: Loss, output: Tensor, y: Tensor, mu: Mu, doubts: Doubts | None = None):
        self.loss, self.price, self.doubts = loss, mu, doubts or Doubts()
        self.y = loss.prepare(output, y)
        self.start = loss.at(output, self.y)
        self.glides = self.start.curvature is not None

    @property
    def pull_back(self) -> Mu:
        return 2 * self.price

    def served(self) -> "LossAbove":
        """The same once the code below has moved."""
        return self

    def plain(self) -> "LossAbove":
        return self

    def weigh(self, values: Tensor) -> Tensor:
        return values

    def shift(self, at: Evaluation, dy: Tensor) -> Evaluation:
        """The term once the output has moved on by dy."""
        return self.loss.at(at.output + dy, self.y)

    def longest(self, block: Block, p: Params, state: State) -> tuple[Tensor, Tensor]:
        """The code's best step u along g is at most g / 2 mu, since the loss is convex. And |u|^2."""
        return _longest(block, p, state, _over(self.start.force, self.price))

    def share(self, u: Tensor, uu: Tensor, dy: Tensor) -> tuple[Tensor, Evaluation]:
        """The best share of u in the Gauss-Newton model, halved where it raises the objective; and the loss then."""
        assert not isinstance(self.loss, AnyLoss)
        costs = scaled(uu, self.price)

        def go(share: Tensor) -> tuple[Tensor, Evaluation]:
            return share, self.loss.at(_moved(self.start.output, share, dy), self.y)

        def rose(found: tuple[Tensor, Evaluation]) -> Tensor:
            return _rose(found[1].values, found[0], costs, self.start.values, self.loss.slack)

        return halved(self.loss.newton(self.start, self.y, dy, costs), go, rose, self.doubts)

    def ceiling(self, values: Tensor) -> Tensor:
        """What values may reach by rounding alone."""
        return _ceiling(values, self.loss.slack)

    def best(self, line: "Line", v: Tensor) -> Move:
        """The Gauss-Newton step, halved where it raises the objective; without curvature the penalty's."""
        gv, vv = line.dots(v)
        bend = line.now.curvature(line.block.push(line.p, line.state, v)) if line.now.curvature else gv.new_zeros(1)
        return line.guard(gv.clamp_min(0) / (_like(bend, gv) + self.pull_back * vv).clamp_min(_tiny(gv)), v)


class FitAbove:
    """The term above a lower code: the distance from the offset t that the code above asks of its block."""

    price = pull_back = 1.0
    shrinks = True
    """Whether what codes ask for shrinks on its way down, see codes.magnify."""

    def __init__(
        self,
        t: Tensor,
        square: Tensor | None = None,
        scale: Tensor | float = 1.0,
        moved: Tensor | None = None,
        doubts: Doubts | None = None,
        spared: Tensor | None = None,
    ):
        self.start = Evaluation(t, dot(t, t) if square is None else square, t, None)
        self.scale, self.doubts = scale, doubts or Doubts()
        """How many times larger than they are offsets are given here: small ones are magnified, see codes.magnify."""
        self._moved, self.spared = moved, spared
        """The part of t that each sample really asks for (None: all): t is the longest step, not yet cut to its share.

        What a code asks for has the same direction and the same best share whatever its length, so the codes below need
        not wait until its length is known. Values and forces of this term are those of all of t."""

    glides = True

    @property
    def moved(self) -> Tensor:
        """The square of the code's way from its encoded value: |t|^2, unless it leaves less for its block to fit."""
        return self.weigh(self.start.values) if self._moved is None else self._moved

    def weigh(self, values: Tensor) -> Tensor:
        """Values of all of t, brought down to the part of it that each sample asks for."""
        return values if self.spared is None else self.spared.square() * values

    def plain(self) -> "FitAbove":
        """The same, with t cut to its share."""
        if self.spared is None:
            return self
        t, values = each(self.spared, self.start.force), self.weigh(self.start.values)
        return FitAbove(t, values, self.scale, self._moved, self.doubts)

    def served(self) -> "FitAbove":
        """The same once the code below has moved: t itself is no longer needed."""
        self.start = self.start._replace(output=self.start.values, force=self.start.values)
        return self

    def shift(self, at: Evaluation, dy: Tensor) -> Evaluation:
        """The term once the block's output has moved on by dy."""
        r = at.force - dy
        return Evaluation(r, dot(r, r), r, None)

    def ceiling(self, values: Tensor) -> Tensor:
        """What values may reach by rounding alone."""
        return torch.add(values, values, alpha=torch.finfo(values.dtype).eps)

    def longest(self, block: Block, p: Params, state: State) -> tuple[Tensor, Tensor]:
        """The best step along g = J^T t is |g|^2 / (|Jg|^2 + |g|^2). As |g|^2 = <t, Jg> <= |t| |Jg|, it is at most
        |t|^2 / (|g|^2 + |t|^2). That step u, and |u|^2."""
        return _longest(block, p, state, self.start.force, self.start.values)

    def share(self, u: Tensor, uu: Tensor, dy: Tensor) -> tuple[Tensor, Evaluation]:
        """The best share of u and the fit then: along u the objective is a parabola, whose lowest point is never above
        its start."""
        share, r, values = best_fit(self.start.force, dy, uu)
        return share, Evaluation(r, values, r, None)

    def best(self, line: "Line", v: Tensor) -> Move:
        """The best step along v, were the block linear; halved while it raises the objective.

        With K = (J, I) it is <g, v> / |Kv|^2.
        """
        gv, vv = line.dots(v)
        Jv = line.block.push(line.p, line.state, v)
        return line.guard(gv.clamp_min(0) / (dot(Jv, Jv, line.couples) + vv).clamp_min(_tiny(gv)), v)


Above = LossAbove | FitAbove


def _longest(block: Block, p: Params, state: State, v: Tensor, vv: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """A step along J^T v at the input of a straight block's core, and its square."""
    g = block.core.maps[0].pull(p, state.input, v)
    return _stopped(g, state.input if block.rectified else None, block.room(state), vv)


@fusible
def _stopped(g: Tensor, at: Tensor | None, room: Tensor | None, tt: Tensor | None) -> tuple[Tensor, Tensor]:
    """g without the entries that a rectifier holds at zero; its share |t|^2 / (|g|^2 + |t|^2); stopped at the kinks."""
    u = g if at is None else threshold(g, at)
    if tt is not None:
        u = each(tt / (dot(u, u) + tt).clamp_min(_tiny(tt)), u)
    u = u if room is None else u.maximum(-room)
    return u, dot(u, u)


@fusible
def scaled(u: Tensor, factor: Mu) -> Tensor:
    return u * factor


@fusible
def _over(force: Tensor, mu: Mu) -> Tensor:
    return force / (2 * mu)


def _ceiling(values: Tensor, slack: tuple[float, float]) -> Tensor:
    """What values may reach by rounding alone: so many roundings of a number of size one, so many of their own."""
    eps = torch.finfo(values.dtype).eps
    return values + slack[0] * eps if not slack[1] else values + (slack[0] + slack[1] * values.abs()) * eps


@fusible
def _rose(values: Tensor, share: Tensor, costs: Tensor, before: Tensor, slack: tuple[float, float]) -> Tensor:
    return torch.addcmul(values, share.square(), costs) > _ceiling(before, slack)


@fusible
def _moved(output: Tensor, share: Tensor, dy: Tensor) -> Tensor:
    return torch.addcmul(output, column(share, dy), dy)


@fusible
def best_fit(t: Tensor, dy: Tensor, uu: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The best share of dy, what it leaves of t, and the square of that."""
    share = (dot(t, dy) / (dot(dy, dy) + uu).clamp_min(_tiny(uu))).clamp(0, 1)
    r = torch.addcmul(t, column(share, dy), dy, value=-1)
    return share, r, dot(r, r)


class Line:
    """One code's objective around its present offset d (None is zero), for any block and direction."""

    def __init__(
        self,
        block: Block,
        p: Params,
        state: State,
        code: Tensor,
        above: Above,
        so_far: Move | None = None,
        l1: Mu | None = None,
    ):
        self.block, self.p, self.state, self.code, self.above, self.l1 = block, p, state, code, above, l1
        self.d = None if so_far is None else so_far.offset
        self.now = above.start if so_far is None else so_far.after
        self.couples = block.couples or self.now.values.shape[0] < code.shape[0]
        g = block.pull(p, state, self.now.force)
        self.g = g if self.d is None else g - above.pull_back * self.d
        """Minus the gradient of all but the l1 term; of a fit, half of that."""

    def dots(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """<g, v> and <v, v> of each sample; of all together where the block couples them."""
        return dot(self.g, v, self.couples), dot(v, v, self.couples)

    def guard(self, alpha: Tensor, v: Tensor) -> Move:
        """The step alpha along v, halved where it raises the objective; not where an estimate chose v."""
        if self.block.estimated:
            return self.go(alpha, v)
        ceiling = self.above.ceiling(self.value(self.now, self.d))

        def rose(move: Move) -> Tensor:
            return self.value(move.after, move.offset) > ceiling

        return halved(alpha, lambda a: self.go(a, v), rose, self.above.doubts)

    def go(self, alpha: Tensor, v: Tensor) -> Move:
        """A step of given length, wherever it leads; the l1 term acts by its proximal step."""
        e = each(alpha, v)
        if self.l1 is not None:
            base = self.code if self.d is None else self.code + self.d
            threshold = each(alpha * self.l1 * (self.above.pull_back / self.above.price / 2), torch.ones_like(v))
            e = (base + e).sign() * ((base + e).abs() - threshold).clamp_min(0) - base
        dy, state = self.block.move(self.p, self.state, e)
        d = e if self.d is None else self.d + e
        return Move(d, dot(d, d), self.above.shift(self.now, dy), state.core)

    def value(self, at: Evaluation, d: Tensor | None) -> Tensor:
        """The objective, per sample or of all together."""
        value = at.values.sum().view(1) if self.couples else at.values
        if d is not None:
            value = value + self.above.price * dot(d, d, self.couples)
        if self.l1 is not None:
            size = (self.code if d is None else self.code + d).abs()
            value = value + self.l1 * (size.sum().view(1) if self.couples else size.flatten(1).sum(1))
        return value


def column(a: Tensor, like: Tensor) -> Tensor:
    return a.view(-1, *[1] * (like.ndim - 1))


def each(a: Tensor, u: Tensor) -> Tensor:
    return column(a, u) * u


def _like(values: Tensor, pattern: Tensor) -> Tensor:
    """Values of each sample, summed where the pattern has one for all."""
    return values if values.shape == pattern.shape else values.sum().view(1)


def _tiny(x: Tensor) -> float:
    return torch.finfo(x.dtype).tiny
