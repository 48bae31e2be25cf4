"""The code update (Algorithm 2): one step for every code, of the length that is best, were the blocks linear.

Write F for a block, J for its Jacobian at the encoded code c below it, and delta for the gradient that reaches its
output; at the top that of the mean loss. Sums are over the whole mini-batch. With the Hessian H of what lies above
(I below another code) and the price kappa of a move (1 below another code, 2 mu / n below the loss of n samples)

    g = J^T delta,        q = J g,        a = |g|^2 / (<q, H q> + kappa |g|^2),        a |H q| <= share |delta|,
    c <- c - m g,         m = the product of the lengths a above,        r = delta - a q,        next delta = g.

Below the loss r is its gradient at the moved output. The gradient of the block's parameters is that of <r, F> at its
encoded input: as share goes to 0, backprop's. Deltas stay in the scale of the loss, however deep the network.

The loss and the price of moving the last code never rise together: a length by which they would becomes 0. The other
terms of f fall to first order: a minimises |delta - a q|^2 + |a g|^2, which they are where blocks are linear.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from altmin.calculus.context import Context
from altmin.common.errors import demand, shown
from altmin.core.codes.problem import Encoded, Moved, OutputLoss, Problem, Target, unmoved

ORDERS = ("codes-first", "weights-first")
TINY = 1e-30  # added to divisors: codes whose squared gradient is smaller do not move
Number = Any
"""A float, or a tensor without dimensions where steps are recorded (`Context.numbers`)."""
Gradient = Callable[[Tensor], Tensor]


class Direction(NamedTuple):
    """Move of the code below a block, per length.

    input, output: the moves of the block's input, g, and of its output, q = J g. gap: the distance that opens between
    the code and the value that its own block gives it, g. delta: the next delta, g.
    """

    input: Tensor
    output: Tensor
    gap: Tensor
    delta: Tensor


class GradientCodes:
    """A gradient step on every code, with one length for the whole mini-batch.

    share: how much of the gradient at a block's output the move of the code below may take away from its weights, from
    0, where codes do not move and gradients are backprop's, to 1, the full step. order: "codes-first" fits hidden
    weights to the residual after the codes below have moved (r = delta - a q), "weights-first" to the whole delta, so
    that gradients in hidden blocks are backprop's at any share.
    """

    def __init__(self, share: float = 0.1, order: str = "codes-first"):
        demand("GradientCodes", "share", share)
        if share > 1:
            raise ValueError(f"share of GradientCodes lies between 0 and 1, given {share!r}")
        if order not in ORDERS:
            raise ValueError(f"order of GradientCodes is {' or '.join(map(repr, ORDERS))}, given {shown(order)}")
        self.share, self.order = share, order

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({options})"

    def __call__(self, encoded: Sequence[Encoded], target: Target, context: Context) -> Moved:
        """Move the codes below blocks that follow each other. Lists in here go from the top down."""
        blocks, top, delta = encoded[::-1], target.loss, [target.delta]
        moves: list[Direction] = []
        for k, block in enumerate(blocks):
            if block.is_code:
                moves.append(self.direction(block, delta[k], blocks[k + 1 : k + 2]))
                delta.append(moves[k].delta)
        if not moves:
            return unmoved(encoded[0], target, context)
        a, costs, squares = self.lengths(blocks, moves, delta, target, context)
        r, m, gradient = list(delta), [target.scale], None
        for k in range(top is not None, len(moves)):
            if self.order == "codes-first" and not blocks[k].block.estimated:
                r[k] = context.less(r[k], moves[k].output, a[k])
        if top is not None:
            price = top.price * squares[1] / 2
            a[0], r[0], costs[0], gradient = self.below_loss(top, blocks[0], moves[0], a[0], price, context)
            squares[0] = 0 * costs[0]
        for length in a:
            m.append(m[-1] * length)
        problems = []
        for k, (F, _, _, saved, *_) in enumerate(blocks):
            problems.append(Problem(F, saved.core, r[k], delta[k], m[k], context, None if k else gradient))
            costs[k], squares[k] = m[k] * m[k] * costs[k], m[k] * m[k] * squares[k]
        below = Target(delta[-1], m[-1]) if len(moves) == len(blocks) else None
        return Moved(problems[::-1], costs[::-1], squares[: len(blocks)][::-1], below)

    def direction(self, above: Encoded, delta: Tensor, below: Sequence[Encoded]) -> Direction:
        """Return the move of the code below a block. delta: at its output; below: the code's own block, if known."""
        F, p, _, saved, *_ = above
        g = F.vjp(p, saved, delta)
        return Direction(g, F.jvp(p, saved, g), g, g)

    def lengths(
        self,
        blocks: Sequence[Encoded],
        moves: Sequence[Direction],
        delta: Sequence[Tensor],
        target: Target,
        context: Context,
    ) -> tuple[list[Number], list[Number], list[Number]]:
        """Return the length of every move; of every block |o - a q|^2, were it linear, for the distance o between its
        output and its code, per length; and |o|^2. All inner products are entries of one vector."""
        top, pairs, o = target.loss, [], target.delta
        for k, (u, q, gap, _) in enumerate(moves):
            Hq = q if k or top is None else top.hessian(q)
            bounded = Hq if k or top is None or top.loss.curves else top.curved(q, Hq, self.share)
            slope = (gap, gap) if gap is u and o is delta[k] else (o, q)
            pairs += [(o, o), slope, (q, Hq), (delta[k], delta[k]), (bounded, bounded)]
            o = gap
        numbers = context.numbers(context.inners([*pairs, (o, o)]))
        a: list[Number] = []
        costs, squares = [], numbers[::5]
        for k in range(len(moves)):
            square, slope, curvature, whole, bend = numbers[5 * k : 5 * k + 5]
            price = squares[k + 1] * (1 if k or top is None else top.price)
            best = (slope + abs(slope)) / 2 / (curvature + price + TINY)
            longest = self.share * (whole / (bend + TINY)) ** 0.5
            a += context.choose(longest < best, [longest], [best])
            costs.append(square - (0 if blocks[k].block.estimated else a[k] * (2 * slope - a[k] * curvature)))
        return a, costs + squares[len(moves) : len(blocks)], squares

    def below_loss(
        self, top: OutputLoss, above: Encoded, move: Direction, a: Number, price: Number, context: Context
    ) -> tuple[Number, Tensor, Number, Gradient]:
        """Return the length of the last code's move, 0 where f would rise; the gradient of the loss at the moved
        output; its value there; and its gradient after a further change. price: that of the move over a^2."""
        F, p, c, saved, *_ = above
        output, value, r = top.output, top.value, top.delta
        if not F.estimated:
            output = F.replay(p, saved, context.less(c, move.input, a))[0]
            value, r, _ = top.at(output)
        after, before = context.numbers(torch.stack([value, top.value]))
        if not F.estimated:
            rounding = torch.finfo(r.dtype).eps * (16 * abs(before) + top.loss.rounding)
            falls = after + a * a * price <= before + rounding  # not where it is NaN
            moved, still = [a, output, r, after], [0 * before, top.output, top.delta, before]
            a, output, r, after = context.choose(falls, moved, still)
        return a, r, after, lambda change: top.at(output + change).delta

    def why_not_captured(self) -> str:
        return ""
