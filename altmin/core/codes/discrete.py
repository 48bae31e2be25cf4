"""Code solvers for activations without derivatives: a search over their values, and the straight-through estimate.

Below a discrete activation (`Sign`, `Staircase`) lies a code c; s(c) has one of few values, h apart, and the block
above, W s(c), is to move by t, some multiple of -delta. With R = a t the search picks values s' that lower

    E(s') = | R - W (s' - s) |^2 + sum_j dist(c_j, s'_j)^2,

where dist is how far c_j has to move until its activation is s'_j: the two terms of f that contain the code. Moving
unit j alone by h in the direction e = +1 or -1 lowers E by

    gain = 2 h e q_j - h^2 |w_j|^2 - (the increase of dist(c_j, .)^2),      q = W^T (R - W (s' - s)),

so once q is known every unit's gain costs O(1). With the code's own move as R hardly any gain is positive, since the
move is much smaller than a step h. Hence the amplification a, which brings W^T R to the size of h |w_j|^2 / 2; the
scale of t does not matter. Where a normalisation follows W, t is its vjp of -delta.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from altmin.calculus import Affine, Discrete, Dropout, Estimated, Params, Reshape, StandIn
from altmin.calculus.context import Context
from altmin.common.errors import demand
from altmin.core.chain import Block, State
from altmin.core.codes.gradient import TINY, GradientCodes
from altmin.core.codes.problem import Encoded, Moved, Target, joined, unmoved

ALL: Any = slice(None)
SHARES = (0.0, 0.25, 0.5, 1.0)
"""Moves whose gain exceeds this fraction of the best gain are tried together; with 1 only the best."""


class DiscreteCodes:
    """A search over the values of discrete activations, without their derivatives; see E above.

    amplify: the weight of the code above. A code's own block is moved to the levels v found, which c approaches from
    the sides e, by the gradient of

        sum_j max(0, e_j (v_j - c_j)),

    the same for all units but for its sign, with the norm of a straight-through gradient, that of W^T delta where
    |c| <= 1; each unit moves by the root mean square of their gaps e_j (v_j - c_j). gradient: the solver of codes below
    other activations; its order holds for all blocks.

    No sample's E ever rises. The block above uses the activation as it is, and keeps its whole target, until the
    weights below have moved a code across its threshold.
    """

    def __init__(self, amplify: float = 2.0, gradient: GradientCodes | None = None):
        demand("DiscreteCodes", "amplify", amplify, above=True)
        self.amplify = amplify
        self.gradient = gradient or GradientCodes()

    __repr__ = GradientCodes.__repr__

    def __call__(self, encoded: Sequence[Encoded], target: Target, context: Context) -> Moved:
        """Set the codes below blocks that follow each other, from the last to the first."""
        searched = [point.is_code and lacks_derivative(point.block) for point in encoded]
        parts, end = [], len(encoded)
        while end:
            first = end - 1
            while first and not searched[first] and not searched[first - 1]:
                first -= 1
            solver = self.search if searched[first] else self.gradient
            parts.append(solver(encoded[first:end], target, context))
            target, end = parts[-1].below or target, first
        return joined(parts)

    def search(self, encoded: Sequence[Encoded], target: Target, context: Context) -> Moved:
        """Set the code below a single block."""
        (point,) = encoded
        search = Search(point.block, point.p, point.saved, -target.delta, self.amplify, context)
        search.sweep()
        v, e = search.target()
        gap = e * (v - point.input)
        ee, gaps = context.numbers(context.inners([(e, e), (gap, gap)]))
        size = (search.square / (ee + TINY)) ** 0.5
        below = Target(e * -size, (gaps / (size * size * ee + TINY)) ** 0.5)
        return unmoved(point, target, context)._replace(below=below)


class StraightThroughCodes(GradientCodes):
    """Gradient steps in which the derivative of a discrete activation is taken as 1 where |c| <= 1 and as 0 elsewhere.

    A step has the length that is best by this estimate, and is not checked by f. As with `DiscreteCodes`, the block
    above uses the activation as it is and keeps its whole target. Other codes move as with
    `GradientCodes`, whose options these are.
    """

    def __call__(self, encoded: Sequence[Encoded], target: Target, context: Context) -> Moved:
        return super().__call__([point._replace(block=stand_in(point.block)) for point in encoded], target, context)


def stand_in(block: Block) -> Block:
    """Return the block with the straight-through estimate in place of a derivative that it lacks."""
    maps = [StandIn(m) if isinstance(m, Discrete) else m for m in block.prelude.maps]
    return Block(maps, block.core.maps) if lacks_derivative(block) else block


class Search:
    """E(s') of one block and mini-batch, and the s' that sweeps find, starting from s.

    wish: t of each sample, up to one factor for all. amplify: the root mean square of W^T R over h |w_j|^2 / 2, the
    size above which a step can gain.
    """

    def __init__(self, block: Block, p: Params, state: State, wish: Tensor, amplify: float, context: Context):
        self.context = context
        at, core = position(block), block.core
        for m, of, saved in reversed(list(zip(core.maps, core.slices, state.core, strict=True))[1:]):
            wish = m.vjp(p[of], saved, wish)
        self.layer, self.p, self.saved = core.maps[0], p[core.slices[0]], state.core[0]
        prelude = list(zip(block.prelude.maps, state.prelude, strict=True))
        self.before, self.between = prelude[:at], prelude[at + 1 :]
        self.h: float = block.prelude.maps[at].module.spacing
        self.c, self.start = state.prelude[at]
        self.near = self.c.abs() <= 1
        D = self.layer.vjp([w.square() for w in self.p], self.saved[:1], torch.ones_like(wish[:1]))
        for m, saved in reversed(self.between):
            D = m.vjp((), saved, D.expand(len(wish), *D.shape[1:]))
            D = m.vjp((), saved, D) if isinstance(m, Dropout) else D  # the square of a mask
        self.weight = D
        """|w_j|^2 of every unit: the vjp of ones through squared weights."""
        q = self.vjp(wish)
        within = torch.where(self.near, q, 0)
        (self.square,) = context.numbers(context.inners([(within, within)]))
        """|W^T t|^2 of the units with |c| <= 1: the squared norm of the straight-through gradient."""
        count = self.weight.new_full((), self.weight.numel())
        square, total, count = context.sum(q.square().sum(), self.weight.sum(), count)
        rms = (square / context.count(q.numel())).sqrt().clamp_min(torch.finfo(q.dtype).tiny ** 0.5)
        a = amplify * self.h / 2 * (total / count) / rms
        self.R, self.pull = a * wish, a * q
        self.s, self.left, self.q = self.start, self.R, self.pull
        """s', R - W (s' - s) and q = W^T of it; `pull` is the first q, W^T R."""

    def vjp(self, v: Tensor) -> Tensor:
        """Return W^T v. A dropout mask or a reshaping between the activation and the layer is part of W."""
        v = self.layer.vjp(self.p, self.saved, v)
        for m, saved in reversed(self.between):
            v = m.vjp((), saved, v)
        return v

    def jvp(self, u: Tensor, rows: Any = ALL) -> Tensor:
        """Return W u of some samples."""
        for m, saved in self.between:
            u = m.jvp((), saved[rows] if isinstance(saved, Tensor) else saved, u)
        return self.layer.jvp(self.p, self.saved, u)

    def distance(self, v: Tensor) -> Tensor:
        """Return the distance of each code from the interval on which its activation is v. The outermost intervals are
        unbounded."""
        short = torch.where(v > self.h / 2 - 1, v - self.h / 2 - self.c, 0)
        beyond = torch.where(v < 1 - self.h / 2, self.c - v - self.h / 2, 0)
        return short.maximum(beyond).clamp_min_(0)

    def gains(self, e: Tensor | float) -> tuple[Tensor, Tensor]:
        """Return by how much E falls if a unit alone moves one level in the direction e, and the increase of its
        distance term.

        The gain is -1 where there is no such level, and where |c| > 1, too far for a step of the weights.
        """
        v = self.s + self.h * e
        price = self.distance(v).square() - self.distance(self.s).square()
        gain = self.h * (2 * e * self.q - self.h * self.weight) - price
        return torch.where(self.near & (v.abs() < 1 + self.h / 2), gain, -1.0), price

    def steps(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return every unit's better direction, its gain and its cost."""
        if self.h == 2:  # with two levels there is only the other one
            return -self.s, *self.gains(-self.s)
        (up, price_up), (down, price_down) = self.gains(1.0), self.gains(-1.0)
        rises = up >= down
        return 2 * rises.to(up.dtype) - 1, up.maximum(down), torch.where(rises, price_up, price_down)

    def sweep(self) -> None:
        """Move all units with a positive gain at once; in samples where that would raise E, only those with the
        largest gains."""
        e, gain, price = self.steps()
        most, best = gain.flatten(1).max(1)
        self.s, self.left = self.s.clone(), self.left.clone()
        todo, rows = torch.arange(len(gain), device=gain.device), ALL
        for share in SHARES:
            chosen = gain[rows] > _column(share * most.clamp_min(0), gain)[rows]
            if share == 1:
                chosen = chosen.flatten(1).scatter(1, best[rows, None], True).view_as(chosen)
            u = torch.where(chosen, self.h * e[rows], 0)
            dy, left = self.jvp(u, rows), self.left[rows]
            rise = _dot(dy, dy) - 2 * _dot(left, dy) + torch.where(chosen, price[rows], 0).flatten(1).sum(1)
            self.s[rows] += u * _column(rise < 0, u)
            self.left[rows] = left - dy * _column(rise < 0, dy)
            rows = todo = todo[(rise >= 0) & (most[rows] > 0)]
            if not len(todo):
                break

    def target(self) -> tuple[Tensor, Tensor]:
        """Return the level v that each code should reach, and the side e from which it approaches, e (v - c) >= 0;
        e = 0 if it may stay.

        A unit that moves should reach its new level. A unit at the last level that would gain from a further one
        should keep its level: near its threshold, the next weight step may change it.
        """
        change = self.s - self.start
        hold = self.near & (self.s.abs() > 1 - self.h / 2) & (2 * self.s * self.pull > self.h * self.weight)
        v, e = self.s, torch.where(change.abs() > self.h / 2, change.sign(), self.s.sign() * hold)
        for m, saved in reversed(self.before):  # to the entries of the code that pooling selects
            v, e = m.vjp((), saved, v), m.vjp((), saved, e)
        return v, e


def lacks_derivative(block: Block) -> bool:
    """Return whether an activation with neither a derivative nor an estimate of one lies below the block."""
    return any(isinstance(m, Discrete) and not isinstance(m, Estimated) for m in block.prelude.maps)


def position(block: Block) -> int:
    """Return the position of the discrete activation in a block's prelude. ValueError if the search does not support
    the block."""
    maps = block.prelude.maps
    at = next(i for i, m in enumerate(maps) if isinstance(m, Discrete))
    before = all(m.selects for m in maps[:at])
    between = all(isinstance(m, Reshape | Dropout) for m in maps[at + 1 :])
    if not (before and between and isinstance(block.core.maps[0], Affine)):
        raise ValueError(
            "DiscreteCodes needs a Linear or convolution right after Sign or Staircase, but for dropout and reshaping, "
            f"given ({block}); put max-pooling before the activation, or take codes=altmin.StraightThroughCodes()"
        )
    return at


def _dot(u: Tensor, v: Tensor) -> Tensor:
    """Return <u, v> of each sample."""
    return (u * v).flatten(1).sum(1)


def _column(a: Tensor, like: Tensor) -> Tensor:
    return a.view(-1, *[1] * (like.ndim - 1))
