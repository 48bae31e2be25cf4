"""What lies above a code: the loss, or another code that asks its block to move; and what a block is left with.

The letters are those of `codes/gradient.py`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from altmin.calculus import Number, Params, Saved
from altmin.calculus.base import SMALLEST, shifted
from altmin.calculus.numbers import along, at_least, eager, inner, number, root, select, size
from altmin.core.chain import Block, State
from altmin.core.losses import Loss


class At(NamedTuple):
    """What lies above a code, for one move of the block's output: its value, its gradient, and its Hessian's product.

    Of a fit the value is half the squared distance, over mu scale^2 / n.
    """

    value: Number
    delta: Tensor
    hessian: Callable[[Tensor], Tensor]


class Top:
    """The loss above the last code. Its moves are not scaled. unit: what a fixed step is multiplied by, as deltas are
    those of the mean loss, and f has the sum."""

    scale = longest = 1.0

    def __init__(self, loss: Loss, output: Tensor, y: Tensor, mu: Number):
        if output.ndim == 0 or len(output) == 0:
            raise ValueError(
                f"the model gives an output of shape {tuple(output.shape)}, one for each sample is expected"
            )
        self.loss, self.y = loss, loss.prepare(output, y)
        first = loss.at(output, self.y)
        self.unit = loss.samples(output)
        self.price = 2 * mu / self.unit
        self.loss_value = first.value
        self.start = At(number(first.value), first.delta, first.hessian)
        self.position, self.delta = output, first.delta
        self._square: Number | None = None

    @property
    def square(self) -> Number:
        """|delta|^2, computed once, where it is asked for and has not been set."""
        if self._square is None:
            self._square = inner(self.delta, self.delta)
        return self._square

    @square.setter
    def square(self, known: Number) -> None:
        self._square = known

    def at(self, output: Tensor) -> At:
        found = self.loss.at(output, self.y)
        return At(number(found.value), found.delta, found.hessian)

    def reach(
        self,
        block: Block,
        p: Params,
        state: State,
        code: Tensor,
        a: Number,
        u: Tensor,
        uu: Number,
        Ju: Any,
        code_square: Number | None = None,
    ) -> Any:
        """The output, and the block's state, once the code has moved by -a u."""
        if block.estimated:  # a discrete activation stays as it is
            return self.position, state
        return block.replay(p, state, shifted(code, u, a))

    @property
    def slack(self) -> tuple[float, float]:
        """By how much two values may differ by rounding alone: a number, and a factor on the value."""
        eps = torch.finfo(self.delta.dtype).eps
        return eps * self.loss.rounding, 16 * eps

    def residual(self, saved: list[Saved], at: At, order: str, output: Tensor | None = None) -> "Residual":
        """What the output block is left with. output: where it has moved to, None if it has not."""

        def after(change: Tensor) -> Tensor:
            return self.loss.at((self.position if output is None else output) + change, self.y).delta

        return Residual(saved, at.delta, after, at.value, None)


class Ask:
    """What a code asks of the block that computes it: to move its output by -scale * delta.

    square: |delta|^2. longest: a bound on scale that is known without any jvp of the codes above. offset: the code
    itself has moved by -scale * offset, which stops at the kinks of the block above; None where that is delta.
    offset_square: |offset|^2.
    """

    price = 1.0
    unit = 1

    def __init__(
        self,
        delta: Tensor,
        square: Number,
        scale: Number,
        longest: Number,
        offset: Callable[[], Tensor] | None = None,
        offset_square: Number | None = None,
    ):
        self.delta, self.square, self.scale, self.longest = delta, square, scale, longest
        self._offset: Any = offset
        self.offset_square = square if offset_square is None else offset_square

    @property
    def offset(self) -> Tensor | None:
        if callable(self._offset):  # computed once, where it is asked for
            self._offset = self._offset()
        return self._offset

    @property
    def position(self) -> Tensor:
        return self.delta if self.offset is None else self.offset

    @property
    def start(self) -> At:
        return At(self.offset_square / 2, self.delta, _same)

    def at(self, r: Tensor, square: Number | None = None) -> At:
        """r: what is left of the offset. square: |r|^2, where it is known already."""
        square = inner(r, r) if square is None else square
        return At(square / 2, r if self.offset is None else r + (self.delta - self.offset), _same)

    def reach(
        self,
        block: Block,
        p: Params,
        state: State,
        code: Tensor,
        a: Number,
        u: Tensor,
        uu: Number,
        Ju: Any,
        code_square: Number | None = None,
    ) -> Any:
        """What is left of the offset, and the block's state, once the code below has moved by -scale a u. uu: |u|^2.
        code_square: |code|^2, where it is known already."""
        if Ju is not None and not perceptible(code, uu, self.scale * a, code_square):
            return along(self.position, -a, Ju), state
        Q, moved = block.quotient(p, state, u, self.scale * a, Ju)
        return along(self.position, -a, Q), moved

    @property
    def slack(self) -> tuple[float, float]:
        return 0.0, 16 * torch.finfo(self.delta.dtype).eps

    def residual(self, saved: list[Saved], at: At, order: str, r: Tensor | None = None) -> "Residual":
        """What the code's own block is left with."""
        delta = at.delta if order == "codes-first" else self.delta
        m = self.scale * self.scale
        return fitted(saved, delta, self.scale, m * (2 * at.value), m * self.offset_square)


Above = Top | Ask


class Residual(NamedTuple):
    """What one block is left with once the codes are set: its own small problem.

    saved: what its core's modules remember at the moved input. delta: the gradient at its output, from which
    `core.grads(p, saved, delta)` has that of its parameters. after(change): delta once new parameters have changed the
    output. cost: |c - W a|^2 of a hidden block, the mean loss of the output block. moved: |d|^2 of the offset d of the
    block's own code, None for the output block, which has none. scale: c - W a is -scale * delta. grads: the gradient
    of its parameters, where it is known already.
    """

    saved: list[Saved]
    delta: Tensor
    after: Callable[[Tensor], Tensor]
    cost: Number
    moved: Number | None
    scale: Number = 1.0
    grads: Params | None = None


def fitted(saved: list[Saved], delta: Tensor, scale: Number, cost: Number, moved: Number) -> Residual:
    """The residual of a hidden block, whose code asks for a move by -scale times its delta."""

    def after(change: Tensor) -> Tensor:
        # of a code that has not moved nothing is known but delta
        return delta + select(scale > SMALLEST, change / at_least(scale, SMALLEST), torch.zeros_like(change))

    return Residual(saved, delta, after, cost, moved, scale)


def perceptible(code: Tensor, uu: Number, e: Number, square: Number | None = None) -> bool:
    """Whether a move by e u, with |u|^2 = uu, changes a code by more than its rounding. Where numbers cannot be read:
    True. square: |code|^2, where it is known already."""
    if not eager():
        return True
    square = inner(code, code) if square is None else square
    return bool(size(e) * root(uu) > torch.finfo(code.dtype).eps / 2 * root(square))


def _same(q: Tensor) -> Tensor:
    return q
