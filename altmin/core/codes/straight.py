"""One exact step of the codes below straight blocks (see `Block.straight`): one vjp and one jvp for each.

The letters are those of `codes/gradient.py`. g is followed up to the kinks on the longest way that could be the best
(see `length_bound`), and no further: along that u the block is linear. What is handed down is g itself.
"""

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from torch import Tensor

from altmin.calculus import Number, Params, gate
from altmin.calculus.numbers import inners
from altmin.core.chain import Block, State
from altmin.core.codes.above import Ask, Residual, fitted
from altmin.core.codes.linesearch import clipped, length_bound, search_pairs, stopped, straight_move


def straight_step(block: Block, p: Params, state: State, above: Ask, share: float, order: str) -> tuple[Residual, Ask]:
    """The step of one code: what its block is left with, and what the code asks of its own block."""
    x, layer, room = state.core[0], block.core.maps[0], block.room(state)
    g = layer.vjp(p, x, above.delta)
    g, gg, u, uu, bound = clipped(g, x if block.rectified else None, room, above.square, above.longest, share)
    q = layer.jvp(p, x, u)
    numbers = uu, above.square, above.offset_square, bound, above.scale, above.longest
    moved, r, cost, square, scale, longest = straight_move(x, u, above.delta, above.offset, q, *numbers, share)
    residual = fitted([moved], r if order == "codes-first" else above.delta, above.scale, cost, square)
    offset = None if room is None else partial(block.prelude.vjp, (), state.prelude, u)
    return residual, Ask(block.spread(state, g), gg, scale, longest, offset, uu)


class Straight(NamedTuple):
    """A straight block of which g = J^T delta is known at the input of its core, and so what is asked of the next."""

    block: Block
    p: Params
    state: State
    g: Tensor
    below: Tensor
    """g at the code, the delta of the block below."""
    square: Number = 0.0
    """|g|^2."""


def pulled(block: Block, p: Params, state: State, delta: Tensor) -> Straight:
    """The first of three phases: g, with no sum over samples."""
    x = state.core[0]
    g = block.core.maps[0].vjp(p, x, delta)
    g = gate(g, x) if block.rectified else g
    return Straight(block, p, state, g, block.spread(state, g))


def straight_steps(run: Sequence[Straight], above: Ask, share: float, order: str) -> Iterator[tuple[Residual, Ask]]:
    """`straight_step` for each block of a run, from the last to the first, given |g|^2 of each.

    The bounds on the lengths follow from the squares alone. So u and q = Ju of all blocks are the second phase, after
    which all inner products are summed at once, and the lengths and moves are the third."""
    us, qs, bounds, pairs = [], [], [], []
    asks = [above]  # what the codes ask, as far as it is known before any length
    for each in run:
        ask, room, x = asks[-1], each.block.room(each.state), each.state.core[0]
        bounds.append(length_bound(ask.square, each.square, share))
        longest = ask.longest * bounds[-1]
        us.append(each.g if room is None else stopped(each.g, room, longest))
        qs.append(each.block.core.maps[0].jvp(each.p, x, us[-1]))
        pairs += [(us[-1], us[-1]), *search_pairs(ask.delta, ask.offset, qs[-1])]
        offset = None if room is None else partial(each.block.prelude.vjp, (), each.state.prelude, us[-1])
        asks.append(Ask(each.below, each.square, 0.0, longest, offset))
    sums = inners(*pairs)
    for i, (each, (ask, below)) in enumerate(zip(run, itertools.pairwise(asks), strict=True)):
        uu, *products = sums[3 * i : 3 * i + 3]
        numbers = uu, ask.square, ask.offset_square, bounds[i], ask.scale, ask.longest
        moved, r, cost, square, below.scale, _ = straight_move(
            each.state.core[0], us[i], ask.delta, ask.offset, qs[i], *numbers, share, products
        )
        below.offset_square = uu
        residual = fitted([moved], r if order == "codes-first" else ask.delta, ask.scale, cost, square)
        yield residual, below
