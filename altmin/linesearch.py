"""How far a code should go: its objective along one direction, and the step that lowers it most.

A code with offset d from its encoded value c lowers

    above(dF(d)) + weight |d|^2 / 2 + l1 |c + d|_1,        dF(d) = F(c + d) - F(c),

where F is the block above it and `above` is one of two terms: the loss of the moved output, or the distance
|t - dF(d)|^2 / 2 from the offset t that the code above asks for.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from altmin.blocks import Block, State
from altmin.maps import Params, Saved
from altmin.objective import Evaluation, Loss, dot

HALVINGS = 12


class LossAbove:
    """The term above the last code: the loss, as a function of the output's move."""

    def __init__(self, loss: Loss, output: Tensor, y: Tensor, mu: float):
        self.loss, self.output, self.y, self.weight = loss, output, y, 2 * mu
        self.start = loss.at(output, y)

    def at(self, dy: Tensor) -> Evaluation:
        return self.loss.at(self.output + dy, self.y)

    def best(self, line: "Line", v: Tensor) -> "Move":
        """The best step along v in the Gauss-Newton model; the longest that the penalty allows if there is none."""
        gv, vv = line.dots(v)
        bend = line.now.curvature(line.block.push(line.p, line.state, v)) if line.now.curvature else gv.new_zeros(1)
        return line.guard(gv.clamp_min(0) / (_like(bend, gv) + self.weight * vv).clamp_min(_tiny(gv)), v)


class FitAbove:
    """The term above a lower code: the distance from the offset t that the code above asks of its block."""

    weight = 1.0

    def __init__(self, t: Tensor):
        self.t = t
        self.start = Evaluation(dot(t, t) / 2, t, None)

    def at(self, dy: Tensor) -> Evaluation:
        r = self.t - dy
        return Evaluation(dot(r, r) / 2, r, None)

    def best(self, line: "Line", v: Tensor) -> "Move":
        """The exact line search, one product: try a step that is certainly long enough, take the best share of it.

        With the residual rho = (r, -d) and K = (J, I) the best step is <rho, Kv> / |Kv|^2, where <rho, Kv> = <g, v>.
        By Cauchy-Schwarz |Kv|^2 >= <g, v>^2 / |rho|^2, so it is not beyond |rho|^2 / <g, v>; nor beyond <g, v> / |v|^2.
        Along a straight block the objective is a parabola in the share, so nothing remains to be checked.
        """
        gv, vv = line.dots(v)
        rho = 2 * line.now.values if line.d is None else 2 * line.now.values + dot(line.d, line.d)
        bound = (_like(rho, gv) / gv.clamp_min(_tiny(gv))).minimum(gv.clamp_min(0) / vv.clamp_min(_tiny(gv)))
        e = line.step(bound, v)
        if not line.straight:
            return line.guard(bound * self._share(line, e, line.block.move(line.p, line.state, e)[1]), v)
        du, dy = line.block.glide(line.p, line.state, e)
        share = self._share(line, e, dy)
        d = _each(share, e)
        return line.land(d, d if du is e else _each(share, du), _each(share, dy))

    def _share(self, line: "Line", e: Tensor, dy: Tensor) -> Tensor:
        """The lowest point, in [0, 1], of |r - share dy|^2 + |d + share e|^2."""
        gain = dot(line.now.force, dy, line.couples)
        gain = gain if line.d is None else gain - dot(line.d, e, line.couples)
        cost = dot(dy, dy, line.couples) + dot(e, e, line.couples)
        return (gain / cost.clamp_min(_tiny(gain))).clamp(0, 1)


Above = LossAbove | FitAbove


class Move(NamedTuple):
    """A step of a code, by how much it moves the output of the block above, the term above then, and what the core of
    that block remembers at its new input."""

    offset: Tensor
    output: Tensor
    after: Evaluation
    core: list[Saved]

    def then(self, other: "Move") -> "Move":
        return Move(self.offset + other.offset, self.output + other.output, other.after, other.core)


class Line:
    """One code's objective around its present offset (`so_far`; None is zero)."""

    def __init__(
        self, block: Block, p: Params, state: State, code: Tensor, above: Above, so_far: Move | None, l1: float
    ):
        self.block, self.p, self.state, self.code, self.above, self.l1 = block, p, state, code, above, l1
        self.d = None if so_far is None else so_far.offset
        self.dy = None if so_far is None else so_far.output
        self.now = above.start if so_far is None else so_far.after
        self.couples = block.couples or len(self.now.values) < len(code)
        self.straight = block.straight and not l1
        g = block.pull(p, state, self.now.force)
        self.g = g if self.d is None else g - above.weight * self.d
        """Minus the gradient, of all but the l1 term."""

    def dots(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """<g, v> and <v, v> of each sample; of all together where the block couples them."""
        gv = dot(self.g, v, self.couples)
        return gv, gv if v is self.g else dot(v, v, self.couples)

    def fixed(self, alpha: float, v: Tensor) -> Move:
        """A step of given length, wherever it leads."""
        e = alpha * v
        return self.go(self._shrink(e, alpha * self.l1) if self.l1 else e, straight=False)

    def guard(self, alpha: Tensor, v: Tensor) -> Move:
        """The step alpha, halved where it raises the objective until it does not; at last, not taken."""
        before = self.value(self.now, self.d)
        ceiling = before + torch.finfo(before.dtype).eps * before.abs()
        for left in reversed(range(HALVINGS)):
            move = self.go(self.step(alpha, v), self.straight)
            rose = self.value(move.after, move.offset if self.d is None else self.d + move.offset) > ceiling
            if not bool(rose.any()):
                return move
            alpha = torch.where(rose, alpha / 2 if left > 1 else 0, alpha)
        return move

    def step(self, alpha: Tensor, v: Tensor) -> Tensor:
        """The move of a step alpha along v: as far as the kinks, or with the proximal step of the l1 term."""
        e = _each(alpha, v)
        return (
            self._shrink(e, _each(alpha * self.l1, torch.ones_like(v))) if self.l1 else self.block.within(self.state, e)
        )

    def go(self, e: Tensor, straight: bool) -> Move:
        if straight:
            return self.land(e, *self.block.glide(self.p, self.state, e))
        _, dy, state = self.block.move(self.p, self.state, e)
        return Move(e, dy, self._after(dy), state.core)

    def land(self, e: Tensor, du: Tensor, dy: Tensor) -> Move:
        """The move of a straight block, whose core remembers its input alone."""
        return Move(e, dy, self._after(dy), [self.state.input + du])

    def value(self, at: Evaluation, d: Tensor | None) -> Tensor:
        """The objective, per sample or of all together."""
        value = at.values.sum().view(1) if self.couples else at.values
        if d is not None:
            value = value + self.above.weight / 2 * dot(d, d, self.couples)
        if self.l1:
            size = (self.code if d is None else self.code + d).abs()
            value = value + self.l1 * (size.sum().view(1) if self.couples else size.flatten(1).sum(1))
        return value

    def _after(self, dy: Tensor) -> Evaluation:
        return self.above.at(dy if self.dy is None else self.dy + dy)

    def _shrink(self, e: Tensor, threshold: Tensor | float) -> Tensor:
        """The proximal step of the l1 term: the code after e, moved towards zero by the threshold."""
        base = self.code if self.d is None else self.code + self.d
        moved = base + e
        return moved.sign() * (moved.abs() - threshold).clamp_min(0) - base


def _each(a: Tensor, u: Tensor) -> Tensor:
    return a.view(-1, *[1] * (u.ndim - 1)) * u


def _like(values: Tensor, pattern: Tensor) -> Tensor:
    """Values of each sample, summed where the pattern has one for all."""
    return values if values.shape == pattern.shape else values.sum().view(1)


def _tiny(x: Tensor) -> float:
    return torch.finfo(x.dtype).tiny
