"""How far a code moves, and what is left above it: the arithmetic of the code update on tensors and numbers alone.

Each function is one chain of element-wise operations and sums, so that it can be compiled into few kernels. The
letters are those of `codes/gradient.py`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from altmin.calculus import Number, gate
from altmin.calculus.base import shifted
from altmin.calculus.numbers import TINY, along, at_least, inner, inners, least, not_above, number, over, root, size
from altmin.calculus.ranks import summed
from altmin.calculus.sample_weight import weighed
from altmin.common.fusing import fusible


def length_pairs(g: Tensor | None, w: Tensor, Jw: Tensor, HJw: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Whose inner products `best_length` takes."""
    curved, steered = [] if HJw is Jw else [(Jw, HJw)], [] if g is None else [(g, w)]
    return [(w, w), (HJw, HJw), *curved, *steered]


@fusible
def best_length(
    g: Tensor | None,
    w: Tensor,
    Jw: Tensor,
    HJw: Tensor,
    square: Number,
    price: Number,
    share: float,
    products: Sequence[Number] | None = None,
) -> tuple[Number, Number]:
    """The best step along w in the quadratic model, with its bounded share, and |w|^2.

    g: the gradient, None if it is w. square: |delta|^2. price: kappa. products: of `length_pairs`, where they are known
    already."""
    found = inners(*length_pairs(g, w, Jw, HJw)) if products is None else products
    ww, hh = found[0], found[1]
    gw = ww if g is None else at_least(found[-1], 0.0)
    best = over(gw, (hh if HJw is Jw else found[2]) + price * ww)
    return least(best, over(share * root(square), root(hh))), ww


@fusible
def judged(
    value: Number, at: Number, kappa: Number, vv: Number, growth: Number, absolute: float, relative: float
) -> tuple[Any, Number]:
    """Whether the objective of a moved code, at + kappa/2 |v|^2 + growth, is not above `value`, but for rounding; and
    that objective."""
    new = at + kappa / 2 * vv + growth
    return not_above(new, value + absolute + relative * size(value)), new


def length_bound(dd: Number, gg: Number, share: float) -> Number:
    """What no length along g = J^T delta exceeds: |delta|^2 / (|g|^2 + |delta|^2) and share |delta|^2 / |g|^2, since
    |g|^2 = <delta, Jg> <= |delta| |Jg|. It is known without a jvp. dd: |delta|^2, gg: |g|^2."""
    return least(over(dd, gg + dd), over(share * dd, gg))


@fusible
def clipped(
    g: Tensor, x: Tensor | None, room: Tensor | None, dd: Number, longest: Number, share: float
) -> tuple[Tensor, Number, Tensor, Number, Number]:
    """g without the entries that a rectifier with output x holds at zero, and |g|^2; u, which is g stopped at the kinks
    for lengths up to its bound, and |u|^2; and that bound. dd: |delta|^2."""
    g = g if x is None else gate(g, x)
    gg = inner(g, g)
    bound = length_bound(dd, gg, share)
    if room is None:
        return g, gg, g, gg, bound
    u = stopped(g, room, longest * bound)
    return g, gg, u, inner(u, u), bound


def stopped(g: Tensor, room: Tensor, longest: Number) -> Tensor:
    """g, stopped at the kinks that it would reach on a way of the length given."""
    return g.minimum(room / at_least(longest, TINY))


def search_pairs(delta: Tensor, offset: Tensor | None, q: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Whose inner products `line_search` takes."""
    return [(q, q), (delta if offset is None else offset, q)]


@fusible
def line_search(
    delta: Tensor,
    offset: Tensor | None,
    q: Tensor,
    uu: Number,
    dd: Number,
    oo: Number,
    bound: Number,
    share: float,
    products: Sequence[Number] | None = None,
) -> tuple[Number, Tensor, Number]:
    """The length a that lowers |offset - a q|^2 + a^2 |u|^2 most, bounded; r = delta - a q and |offset - a q|^2.

    offset: the code's own, over -scale; None where it is delta. q: Ju. uu, dd, oo: |u|^2, |delta|^2, |offset|^2.
    products: of `search_pairs`, where they are known already."""
    qq, falls = inners(*search_pairs(delta, offset, q)) if products is None else products
    slope = at_least(falls, 0.0)
    a = least(over(slope, qq + uu), over(share * root(dd), root(qq)), bound)
    return a, along(delta, -a, q), at_least(oo - a * (2 * slope - a * qq), 0.0)


@fusible
def straight_move(
    x: Tensor,
    u: Tensor,
    delta: Tensor,
    offset: Tensor | None,
    q: Tensor,
    uu: Number,
    dd: Number,
    oo: Number,
    bound: Number,
    scale: Number,
    longest: Number,
    share: float,
    products: Sequence[Number] | None = None,
) -> tuple[Tensor, Tensor, Number, Number, Number, Number]:
    """What a straight block is left with: its input x moved along u, r, |c - W a|^2 and |d|^2; and the scale of the
    code below with its bound. products: as in `line_search`."""
    a, r, rr = line_search(delta, offset, q, uu, dd, oo, bound, share, products)
    m, below = scale * scale, scale * a
    return shifted(x, u, below), r, m * rr, m * oo, below, longest * bound


def shrunk(code: Tensor, v: Tensor, m: Number, threshold: Number) -> Tensor:
    """v after the proximal step of threshold |c - m v|_1 / m: the code c - m v moves towards zero by m threshold."""
    moved = shifted(code, v, m)
    stays = moved.abs() > m * threshold
    return torch.where(stays, v + threshold * moved.sign(), code / at_least(m, TINY))


def growth(code: Tensor, v: Tensor, m: Number) -> Number:
    """(|c - m v|_1 - |c|_1) / m without cancellation."""
    moved = shifted(code, v, m)
    crosses = moved * code <= 0
    more = torch.where(crosses, (moved.abs() - code.abs()) / at_least(m, TINY), -v * code.sign())
    return number(summed(weighed(more).sum())[0])
