"""The code update (Algorithm 2): one step for every code, of the length that is best, were the blocks linear.

Write F for a block, J for its Jacobian at the encoded code c below it, and delta for the gradient that reaches its
output; at the top that of the mean loss. Sums are over the whole mini-batch. With the Hessian H of what lies above
(I below another code) and the price kappa of a move (1 below another code, 2 mu / n below the loss of n samples)

    g = J^T delta,        q = J g,        a = |g|^2 / (<q, H q> + kappa |g|^2),        a |H q| <= share |delta|,
    c <- c - m g,         m = the product of the lengths a above,        r = delta - a q,        next delta = g.

Below the loss r is its gradient at the moved output. The gradient of the block's parameters is that of <r, F> at its
encoded input: as share goes to 0, backprop's.

Deltas stay in the scale of the loss, however deep the network. The loss and the price of moving the last code never
rise together: a length by which they would becomes 0. The other terms of f fall to first order, as if blocks were
linear: of |delta - (F(c) - F(c - m a g)) / (m a)|^2 + |a g|^2 a length a minimises the linear part.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from altmin.calculus.context import Context
from altmin.common.errors import demand, shown
from altmin.core.codes.problem import Encoded, Moved, Problem, Target, joined, output_moved, unmoved
from altmin.core.losses import Evaluation

ORDERS = ("codes-first", "weights-first")
TINY = 1e-30
"""Added to divisors: codes whose squared gradient is smaller do not move."""
Number = Any
"""A float, or a tensor without dimensions where steps are recorded (`Context.numbers`)."""


class Direction(NamedTuple):
    """How the code below a block moves, per length.

    input, output: the moves of the block's input, g, and of its output, q = J g. own: the distance that opens between
    the code and the value that its own block gives it, g. delta: the next delta, g.
    """

    input: Tensor
    output: Tensor
    own: Tensor
    delta: Tensor


class LineSearch(NamedTuple):
    """A code's part of f after a move by a: square - a (2 slope - a curvature), of the block above, plus price a^2.

    longest: the bound on the length."""

    square: Number
    slope: Number
    curvature: Number
    price: Number
    longest: Number

    @property
    def length(self) -> Number:
        """The best length."""
        best = least(self.slope / (self.curvature + self.price + TINY), self.longest)
        return select(self.slope > 0, best, 0 * best)

    def left(self, a: Number) -> Number:
        """Return what a move by a leaves of the square above."""
        return self.square - a * (2 * self.slope - a * self.curvature)


class GradientCodes:
    """A gradient step on every code, with one length for the whole mini-batch.

    share: how much of the gradient at a block's output the move of the code below may take away from its weights, from
    0, where codes do not move and gradients are backprop's, to 1, the full step. order: "codes-first" fits hidden
    weights to the residual after the codes below have moved (r = delta - a q), "weights-first" to the whole delta.
    """

    def __init__(self, share: float = 0.1, order: str = "codes-first"):
        demand("GradientCodes", "share", share)
        if share > 1:
            raise ValueError(f"share of GradientCodes lies between 0 and 1, given {share!r}")
        if order not in ORDERS:
            raise ValueError(f"order of GradientCodes is {' or '.join(map(repr, ORDERS))}, given {shown(order)}")
        self.share, self.order = share, order

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({options})"

    def __call__(self, encoded: Sequence[Encoded], target: Target, context: Context) -> Moved:
        """Move the codes below blocks that follow each other. Lists in here go from the top down."""
        blocks, delta = encoded[::-1], [target.delta]
        steps: list[Direction] = []
        for k, block in enumerate(blocks):
            if block.is_code:
                steps.append(self.direction(block, delta[k], blocks[k + 1 : k + 2]))
                delta.append(steps[k].delta)
        if not steps:
            return unmoved(encoded[0], target, context)
        searches, square = self.searches(steps, delta, target, context)
        m = target.scale
        parts: list[Moved] = []
        for k, block in enumerate(blocks):
            r, cost, moved, saved, scale = delta[k], square, square, block.saved.core, m
            if k < len(steps):
                a, cost, moved = searches[k].length, searches[k].square, searches[k].square
                if k == 0 and target.loss is not None:
                    a, top = self.below_loss(block, steps[k], a, searches[k].price, target, context)
                    parts.append(top)
                elif not block.block.estimated:
                    cost = searches[k].left(a)
                    r = less(r, steps[k].output, a) if self.order == "codes-first" else r
                m = m * a
            if len(parts) == k:
                problem = Problem(saved, r, delta[k], scale, context)
                parts.append(Moved([problem], [scale * scale * cost], [scale * scale * moved]))
        return joined(parts)._replace(below=Target(delta[-1], m) if len(steps) == len(blocks) else None)

    def direction(self, block: Encoded, delta: Tensor, below: Sequence[Encoded]) -> Direction:
        """Return how the code below a block moves, given the gradient at the block's output. below: the block of that
        code, if it is known."""
        g = block.vjp(delta)
        return Direction(g, block.jvp(g), g, g)

    def searches(
        self, steps: Sequence[Direction], delta: Sequence[Tensor], target: Target, context: Context
    ) -> tuple[list[LineSearch], Number]:
        """Return the line search of every code, from one vector of inner products, and the square of the last move."""
        top, pairs, o = target.loss, [], target.delta
        for k, (u, q, own, _) in enumerate(steps):
            Hq = q if k or top is None else top.hessian(q)
            bounded = q if k or top is None else top.curved(q, Hq, self.share)
            slope = (own, own) if own is u and o is delta[k] else (o, q)  # |g|^2 = <delta, J g>
            pairs += [(o, o), slope, (q, Hq), (delta[k], delta[k]), (bounded, bounded)]
            o = own
        numbers = context.numbers(context.inners([*pairs, (o, o)]))
        searches = []
        for k in range(len(steps)):
            square, slope, curvature, dd, hh, price = numbers[5 * k : 5 * k + 6]
            price = price if k or top is None else top.price * price
            searches.append(LineSearch(square, slope, curvature, price, self.share * (dd / (hh + TINY)) ** 0.5))
        return searches, numbers[-1]

    def below_loss(
        self, block: Encoded, step: Direction, a: Number, price: Number, target: Target, context: Context
    ) -> tuple[Number, Moved]:
        """Return the length of the last code, 0 where f would rise, and the output block with its residual."""
        top, core = target.loss, block.saved.core
        assert top is not None
        if block.block.estimated:
            return a, unmoved(block, target, context)
        output = block.replay(less(block.input, step.input, a))[0]
        value, r, _ = top.at(output)
        after, before = context.numbers(torch.stack([value, top.value]))
        rises = top.rises(after, before, a * a * price / 2)
        pairs = (top.output, output), (top.value, value), (top.delta, r)
        output, value, r = (select(rises, *pair) for pair in pairs)
        return select(rises, 0 * price, a), output_moved(
            core, output, target, context, Evaluation(value, r, top.hessian)
        )

    def why_not_captured(self) -> str:
        return ""


def least(a: Number, b: Number) -> Number:
    return torch.minimum(a, b) if isinstance(a, Tensor) else min(a, b)


def select(condition: Any, a: Any, b: Any) -> Any:
    return torch.where(condition, a, b) if isinstance(condition, Tensor) else a if condition else b


def less(x: Tensor, u: Tensor, a: Number) -> Tensor:
    """Return x - a u, in one pass."""
    return torch.addcmul(x, u, a, value=-1) if isinstance(a, Tensor) else torch.add(x, u, alpha=-a)
