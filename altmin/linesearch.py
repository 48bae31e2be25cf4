"""How far a code should go: its objective along its gradient, and the step that lowers it most.

A code with offset d from its encoded value c lowers

    above(dF(d)) + price |d|^2 + l1 |c + d|_1,        dF(d) = F(c + d) - F(c),

where F is the block above it and `above` is one of two terms: the loss of the moved output, at the price mu, or the
distance |t - dF(d)|^2 from the offset t that the code above asks for, at the price 1 (its share of f over mu).

Both terms know two ways. `glide` serves a block that is linear as far as its kinks (`Block.straight`), the common case:
a closed form with the fewest products. `best` serves every block, along any direction.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from altmin.blocks import Block, State
from altmin.maps import Params, Saved
from altmin.objective import Evaluation, Loss, dot

HALVINGS = 12


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
    """

    def __init__(self, wait: bool = True):
        self.wait = wait
        self.kept: list[Tensor] = []

    def confirmed(self, rose: Tensor) -> bool:
        """Whether any has risen, as far as is known."""
        if self.wait:
            return bool(rose.any())
        self.kept.append(rose.any())
        return False

    def count(self, like: Tensor) -> Tensor:
        """How many doubts were kept and are true, as one entry of a tensor like the one given."""
        return torch.stack(self.kept).sum().to(like.dtype).view(1) if self.kept else like.new_zeros(1)


def halved(
    alpha: Tensor,
    go: Callable[[Tensor], Move],
    value: Callable[[Move], Tensor],
    ceiling: Tensor,
    doubts: Doubts,
) -> Move:
    """The step `go(alpha)`, halved where its value is above the ceiling until it is not; at last, not taken."""
    for left in reversed(range(HALVINGS)):
        move = go(alpha)
        rose = value(move) > ceiling
        if not doubts.confirmed(rose):
            break
        alpha = torch.where(rose, alpha / 2 if left > 1 else 0, alpha)
    return move


class LossAbove:
    """The term above the last code: the loss, as a function of the output's move."""

    scale = 1.0

    def __init__(self, loss: Loss, output: Tensor, y: Tensor, mu: float, doubts: Doubts | None = None):
        self.loss, self.price, self.pull_back, self.doubts = loss, mu, 2 * mu, doubts or Doubts()
        self.y = loss.prepare(output, y)
        self.start = loss.at(output, self.y)

    def served(self) -> "LossAbove":
        """The same once the code below has moved."""
        return self

    def shift(self, at: Evaluation, dy: Tensor) -> Evaluation:
        """The term once the output has moved on by dy."""
        return self.loss.at(at.output + dy, self.y)

    def glide(self, block: Block, p: Params, state: State) -> Move | None:
        """The best step in the Gauss-Newton model, halved where it raises the objective; None if there is no model."""
        if self.start.curvature is None:
            return None
        layer, x = block.core.maps[0], state.input
        g = block.gate(state, layer.pull(p, x, self.start.force))
        gg = dot(g, g)
        bend = self.start.curvature(layer.push(p, x, g))

        def go(alpha: Tensor) -> Move:
            u = block.within(state, _each(alpha, g))
            return Move(u, dot(u, u), self.shift(self.start, layer.push(p, x, u)), [])

        move = halved(
            gg / torch.add(bend, gg, alpha=self.pull_back).clamp_min(_tiny(gg)),
            go,
            lambda move: torch.add(move.after.values, move.square, alpha=self.price),
            self.ceiling(self.start.values),
            self.doubts,
        )
        core: list[Saved] = [x + move.offset]
        return move._replace(offset=block.spread(state, move.offset), core=core)

    def ceiling(self, values: Tensor) -> Tensor:
        """What values may reach by rounding alone."""
        return self.loss.ceiling(values)

    def best(self, line: "Line", v: Tensor) -> Move:
        """As `glide`, but a step that raises the objective is halved; without curvature, from the penalty's step on."""
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
    ):
        self.start = Evaluation(t, dot(t, t) if square is None else square, t, None)
        self.scale, self.doubts = scale, doubts or Doubts()
        """How many times larger than they are offsets are given here: small ones are magnified, see codes.magnify."""
        self.moved = self.start.values if moved is None else moved
        """The square of the code's way from its encoded value: |t|^2, unless it leaves less for its block to fit."""

    def served(self) -> "FitAbove":
        """The same once the code below has moved: t itself is no longer needed."""
        self.start = self.start._replace(output=self.start.values, force=self.start.values)
        return self

    def shift(self, at: Evaluation, dy: Tensor, share: Tensor | float = 1.0) -> Evaluation:
        """The term once the block's output has moved on by a share of dy."""
        r = torch.addcmul(at.force, _column(share, dy), dy, value=-1) if isinstance(share, Tensor) else at.force - dy
        return Evaluation(r, dot(r, r), r, None)

    def ceiling(self, values: Tensor) -> Tensor:
        """What values may reach by rounding alone."""
        return torch.add(values, values, alpha=torch.finfo(values.dtype).eps)

    def glide(self, block: Block, p: Params, state: State) -> Move | None:
        """The exact line search, with one product: try a step that is certainly long enough, take the best share of it.

        The best step along g = J^T t is |g|^2 / (|Jg|^2 + |g|^2), at most 1. As |g|^2 = <t, Jg> <= |t| |Jg|, it is
        also at most |t|^2 / |g|^2. Along the trial the objective is a parabola, whose lowest point is never above its
        start.
        """
        layer, x, t = block.core.maps[0], state.input, self.start.force
        u = block.gate(state, layer.pull(p, x, t))
        u = block.within(state, _each((self.start.values / dot(u, u).clamp_min(_tiny(u))).clamp_max(1), u))
        dy, uu = layer.push(p, x, u), dot(u, u)
        share = (dot(t, dy) / (dot(dy, dy) + uu).clamp_min(_tiny(u))).clamp(0, 1)
        u = _each(share, u)
        after, core = self.shift(self.start, dy, share), [x + u]
        return Move(block.spread(state, u), share * share * uu, after, core)

    def best(self, line: "Line", v: Tensor) -> Move:
        """The best step along v, were the block linear; halved while it raises the objective.

        With K = (J, I) it is <g, v> / |Kv|^2.
        """
        gv, vv = line.dots(v)
        Jv = line.block.push(line.p, line.state, v)
        return line.guard(gv.clamp_min(0) / (dot(Jv, Jv, line.couples) + vv).clamp_min(_tiny(gv)), v)


Above = LossAbove | FitAbove


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
        l1: float = 0.0,
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

        def value(move: Move) -> Tensor:
            return self.value(move.after, move.offset)

        return halved(alpha, lambda a: self.go(a, v), value, ceiling, self.above.doubts)

    def go(self, alpha: Tensor, v: Tensor) -> Move:
        """A step of given length, wherever it leads; the l1 term acts by its proximal step."""
        e = _each(alpha, v)
        if self.l1:
            base = self.code if self.d is None else self.code + self.d
            threshold = _each(alpha * self.l1 * (self.above.pull_back / self.above.price / 2), torch.ones_like(v))
            e = (base + e).sign() * ((base + e).abs() - threshold).clamp_min(0) - base
        dy, state = self.block.move(self.p, self.state, e)
        d = e if self.d is None else self.d + e
        return Move(d, dot(d, d), self.above.shift(self.now, dy), state.core)

    def value(self, at: Evaluation, d: Tensor | None) -> Tensor:
        """The objective, per sample or of all together."""
        value = at.values.sum().view(1) if self.couples else at.values
        if d is not None:
            value = value + self.above.price * dot(d, d, self.couples)
        if self.l1:
            size = (self.code if d is None else self.code + d).abs()
            value = value + self.l1 * (size.sum().view(1) if self.couples else size.flatten(1).sum(1))
        return value


def _column(a: Tensor, like: Tensor) -> Tensor:
    return a.view(-1, *[1] * (like.ndim - 1))


def _each(a: Tensor, u: Tensor) -> Tensor:
    return _column(a, u) * u


def _like(values: Tensor, pattern: Tensor) -> Tensor:
    """Values of each sample, summed where the pattern has one for all."""
    return values if values.shape == pattern.shape else values.sum().view(1)


def _tiny(x: Tensor) -> float:
    return torch.finfo(x.dtype).tiny
