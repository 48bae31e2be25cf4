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
from altmin.core.codes.problem import Encoded, Moved, OutputLoss, Problem, Target, unmoved

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


class Products(NamedTuple):
    """Inner products of a block whose output has moved by o, and whose input may move.

    square: |o|^2; slope: <o, q>, which is |g|^2 but for codes in time; curvature: <q, H q>; delta: |delta|^2; bend:
    |H q|^2. Without a code below all but the first are 0.
    """

    square: Number
    slope: Number = 0.0
    curvature: Number = 0.0
    delta: Number = 0.0
    bend: Number = 0.0


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
        blocks, top, delta = encoded[::-1], target.loss, [target.delta]
        steps: list[Direction] = []
        for k, block in enumerate(blocks):
            if block.is_code:
                steps.append(self.direction(block, delta[k], blocks[k + 1 : k + 2]))
                delta.append(steps[k].delta)
        if not steps:
            return unmoved(encoded[0], target, context)
        dots = self.products(steps, delta, target, context)
        price = [each.square for each in dots[1:]]
        if top is not None:
            price[0] = top.price * price[0]
        a = [self.length(each, own) for each, own in zip(dots, price, strict=False)]
        moved, m = Moved([], [], []), target.scale
        if top is not None:
            a[0], moved = self.below_loss(top, blocks[0], steps[0], a[0], price[0], context)
            m = a[0]
        for k in range(len(moved.problems), len(blocks)):
            block, r, cost = blocks[k], delta[k], dots[k].square
            if k < len(steps) and not block.block.estimated:
                cost = cost - a[k] * (2 * dots[k].slope - a[k] * dots[k].curvature)
                r = less(r, steps[k].output, a[k]) if self.order == "codes-first" else r
            moved.problems.append(Problem(block.block, block.saved.core, r, delta[k], m, context))
            moved.costs.append(m * m * cost)
            moved.squares.append(m * m * dots[k].square)
            m = m * a[k] if k < len(steps) else m
        below = Target(delta[-1], m) if len(steps) == len(blocks) else None
        return Moved(moved.problems[::-1], moved.costs[::-1], moved.squares[::-1], below)

    def direction(self, block: Encoded, delta: Tensor, below: Sequence[Encoded]) -> Direction:
        """Return how the code below a block moves, given the gradient at the block's output. below: the block of that
        code, if it is known."""
        g = block.vjp(delta)
        return Direction(g, block.jvp(g), g, g)

    def products(
        self, steps: Sequence[Direction], delta: Sequence[Tensor], target: Target, context: Context
    ) -> list[Products]:
        """Return the inner products of the blocks above codes, and of the block below the last one, from one vector."""
        top, pairs, o = target.loss, [], target.delta
        for k, (u, q, own, _) in enumerate(steps):
            Hq = q if k or top is None else top.hessian(q)
            bounded = q if k or top is None else top.curved(q, Hq, self.share)
            slope = (own, own) if own is u and o is delta[k] else (o, q)
            pairs += [(o, o), slope, (q, Hq), (delta[k], delta[k]), (bounded, bounded)]
            o = own
        numbers = context.numbers(context.inners([*pairs, (o, o)]))
        return [Products(*numbers[5 * k : 5 * k + 5]) for k in range(len(steps) + 1)]

    def length(self, above: Products, price: Number) -> Number:
        """Return the length of a code's move, given what lies above it and kappa |g|^2."""
        longest = self.share * (above.delta / (above.bend + TINY)) ** 0.5
        return least(above.slope / (above.curvature + price + TINY), longest)

    def below_loss(
        self, top: OutputLoss, block: Encoded, step: Direction, a: Number, price: Number, context: Context
    ) -> tuple[Number, Moved]:
        """Return the length of the last code, 0 where f would rise, and the output block."""
        output, value, r = top.output, top.value, top.delta
        if not block.block.estimated:
            output = block.replay(less(block.input, step.input, a))[0]
            value, r, _ = top.at(output)
        after, before = context.numbers(torch.stack([value, top.value]))
        rises = top.rises(after, before, 0.0 if block.block.estimated else a * a * price / 2)
        output, r, after, a = select(rises, (top.output, top.delta, before, 0 * price), (output, r, after, a))
        gradient = lambda change: top.at(output + change).delta  # noqa: E731
        problem = Problem(block.block, block.saved.core, r, top.delta, 1.0, context, gradient)
        return a, Moved([problem], [after], [0 * after])

    def why_not_captured(self) -> str:
        return ""


def least(a: Number, b: Number) -> Number:
    return torch.minimum(a, b) if isinstance(a, Tensor) else min(a, b)


def select(condition: Any, new: tuple[Any, ...], old: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return new where a condition, which may be a tensor, holds, else old."""
    if isinstance(condition, Tensor):
        return tuple(torch.where(condition, a, b) for a, b in zip(new, old, strict=True))
    return new if condition else old


def less(x: Tensor, u: Tensor, a: Number) -> Tensor:
    """Return x - a u, in one pass."""
    return torch.addcmul(x, u, a, value=-1) if isinstance(a, Tensor) else torch.add(x, u, alpha=-a)
