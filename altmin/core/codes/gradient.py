"""The code update (Algorithm 2): one exact step for every code, in phases.

Write F for a block, J for its Jacobian at the encoded code c below it, and delta for the gradient that reaches its
output. At the top delta is the gradient of the mean loss. All sums are over the whole mini-batch. The code below moves
to c - m a u, where m is the product of the lengths a of the codes above, along

    g = J^T delta,        u = g, stopped at the kinks of a piecewise linear block.

The next delta, passed to the block below, is g itself, in the loss's own scale: deltas neither shrink nor grow by the
lengths, however deep the network. The length lowers f most along u, were F linear. With q = J u, the Hessian H of what
lies above (I below another code), the price kappa of a move (1 below another code, 2 mu / n below the loss of n
samples) and the direction o in which the code above has itself moved (delta, or its u)

    a = <o, q> / (<q, H q> + kappa |u|^2),        a |H q| <= share |delta|.

In the bound H q is (1 - share) q / n where the loss is linear (H q = 0 while delta is not), so that it is a bound for
every loss. The bounded share keeps the residual of the block's own weights,

    r = delta - a Q,        Q = (F(c) - F(c - m a u)) / (m a),

close to delta; below the loss r is the loss's gradient at the moved output. The gradient of the block's parameters is
that of <r, F> at the moved code: as share goes to 0, backprop's. A step that would raise f is rejected, and so are
those below it.

Deltas do not depend on lengths. So the phases are: every g; every |g|^2, which bounds the lengths; every u and q; every
inner product, in one column with an entry for each code, and from it every length; every moved code; one comparison.
Numbers may be floats, tensors or a vector of them: `calculus.numbers`.
"""

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from altmin.calculus.context import Context
from altmin.calculus.numbers import TINY, select
from altmin.common.errors import demand, shown
from altmin.core.chain import State
from altmin.core.codes.links import (
    Above,
    EstimatedLink,
    Link,
    LocalProblem,
    Moves,
    OutputLoss,
    PiecewiseLinearLink,
    Segment,
    Upstream,
    hidden_problem,
    unmoved,
)
from altmin.core.losses import Evaluation

ORDERS = ("codes-first", "weights-first")


class GradientCodes:
    """A gradient step of the best length on every code, one length for the whole mini-batch.

    share: how much of the gradient at a block's output a step may take away from its weights, from 0, where codes do
    not move and gradients are backprop's, to 1, the full step. order: "codes-first" fits hidden weights to the residual
    after the codes below have moved (r = delta - a Q), "weights-first" to the whole target (r = delta).

    f never rises: a step that would raise it is rejected.
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

    def __call__(self, segment: Segment, above: Above) -> Moves:
        """Moves the codes below the blocks of a segment, from the last to the first."""
        links = _gradients(segment, above)
        if not links:
            return unmoved(segment, above)
        context, numbers, codes_first = segment.context, segment.context.numbers, self.order == "codes-first"
        bounds = _bounds(links, above, self.share, context)
        moving = links if codes_first else links[: bounds.still]  # below a code that stays, weights-first needs no jvp
        search = _search(moving, above, bounds, self.share, context)
        scales = numbers.cumprod(numbers.join(numbers.read(above.scale.view(1)), search.lengths))
        scales = numbers.column(numbers.join(scales, numbers.each(zero, bounds.lengths[len(moving) :])))
        problems, m = [], numbers.unbind(numbers.tensor(scales, dtype=above.delta.dtype))
        trial = _try(moving, above, search, m, bounds.still, context)
        if moving and not (context.eager and not any(trial.rises)):
            scales, trial = _reject(moving, above, search, scales, trial, context)
            m = numbers.unbind(numbers.tensor(scales, dtype=above.delta.dtype))
        for k, each in enumerate(links):
            state, r = (trial.states[k], trial.residuals[k]) if k < len(moving) else (each.state, each.delta)
            state = each.move(m[k + 1])[1] if each.exact and k < len(moving) else state
            r = r if codes_first else each.delta
            problems.append(hidden_problem(state.core, r, each.delta, m[k], context))
        if trial.at is not None and trial.output is not None and isinstance(above, OutputLoss):
            problems[0] = above.problem(problems[0].saved, trial.at, trial.output, context)
        return _moves(segment, links[-1], problems, scales, m[-1], bounds.longest, search, trial)

    def why_not_captured(self) -> str:
        return ""


Column = Any
"""Numbers with an entry for each code, from the top down (`calculus.numbers`)."""


class Bounds(NamedTuple):
    """Bounds on the lengths, known before any jvp of hidden blocks.

    dd, gg: |delta|^2 above the code, and |g|^2. lengths: upper bounds; below the loss the length itself.
    longest: the bounds on the scales, which are products of lengths. still: the number of codes above the first whose
    move would be within its rounding, as far as that may be read.
    """

    dd: Column
    gg: Column
    lengths: Column
    longest: Column
    still: int


class Search(NamedTuple):
    """The line searches. lengths: a. uu: |u|^2. oo: |o|^2; 0 where the loss lies above. left: |o - a q|^2, what
    remains of it above a linear block. last: |o|^2 of the last code that moves, a column of one."""

    lengths: Column
    uu: Column
    oo: Column
    left: Column
    last: Column


class Trial(NamedTuple):
    """Codes that have moved by these lengths. residuals, states: for the blocks above them, the remaining delta and
    their states. left: |o - a Q|^2. rises: whether f has risen. output, at: the moved output and the loss there, None
    where another code lies above."""

    residuals: list[Tensor]
    states: list[State]
    left: Column
    rises: Column
    output: Tensor | None
    at: Evaluation | None


def _moves(
    segment: Segment,
    last: Link,
    problems: list[LocalProblem],
    scales: Column,
    m: Tensor,
    longest: Column,
    search: Search,
    trial: Trial,
) -> Moves:
    """The outcome of a step. problems, scales: of the blocks from the top down; scales also has that of the last
    code, m, which the last entry of `longest` bounds."""
    n, context, numbers = len(scales), segment.context, segment.context.numbers
    # squared offsets, and what remains of them: everything below the last code that moves
    oo = numbers.column(numbers.join(search.oo, search.last, numbers.each(zero, scales)))[:n]
    left = numbers.column(numbers.join(trial.left, oo[len(trial.left) :]))
    if trial.at is not None:
        left = numbers.column(numbers.join(numbers.read(trial.at.value.view(1)), left[1:]))  # the scale there is 1
    moved = numbers.column(numbers.flip(numbers.column(numbers.each(scaled, scales, oo))))
    costs = numbers.column(numbers.flip(numbers.column(numbers.each(scaled, scales, left))))
    if segment.begins:
        problems.append(hidden_problem(segment.states[0].core, last.below, last.below, m, context))
        return Moves(problems[::-1], costs, moved, None)
    bound, square = (numbers.tensor(each[-1:], dtype=m.dtype)[0] for each in (longest, oo))
    return Moves(problems[::-1], costs[1:], moved[1:], Upstream(last.below, m, bound, last.offset, square))


def zero(a: Any) -> Any:
    """0, of the same type as a number."""
    return 0 * a


def scaled(m: Any, square: Any) -> Any:
    """m^2 times a square."""
    return m * m * square


def _gradients(segment: Segment, above: Above) -> list[Link]:
    """The codes below the blocks of a segment, from the top down, with the gradients at them. Below the loss no bound
    on a length is known without a jvp, so its block is not treated as piecewise linear."""
    links: list[Link] = []
    delta, output = above.delta, isinstance(above, OutputLoss)
    for i in range(len(segment.blocks) - 1, segment.begins - 1, -1):
        block = segment.blocks[i]
        linear = block.piecewise_linear and not (output and not links)
        kind = EstimatedLink if block.estimated else PiecewiseLinearLink if linear else Link
        links.append(kind(block, segment.theta[i], segment.states[i], segment.inputs[i], delta))
        delta = links[-1].below
    return links


def _bounds(links: Sequence[Link], above: Above, share: Any, context: Context) -> Bounds:
    """|g|^2 = <delta, J g> <= |delta| |J g|, so a <= |delta|^2 / (|g|^2 + |delta|^2), a <= share |delta|^2 / |g|^2."""
    n, first, numbers, watched = len(links), int(isinstance(above, OutputLoss)), context.numbers, []
    pairs = [(above.delta, above.delta), *((each.g, each.g) for each in links)]
    if isinstance(above, OutputLoss):
        links[0].follow(above.longest)
        Hq = above.start.hessian(links[0].q)
        bounded = above.curved(links[0].q, Hq, share)
        pairs += [(bounded, bounded), (links[0].q, Hq)]
    for k in range(first, n if context.eager else 0):
        if not links[k].exact:
            watched.append(k)
            pairs.append((links[k].code, links[k].code))
    found = context.inner_column(pairs)
    dd, gg = found[:n], found[1 : n + 1]

    def bound(dd: Any, gg: Any) -> Any:
        return numbers.minimum(dd / numbers.maximum(gg + dd, TINY), share * dd / numbers.maximum(gg, TINY))

    lengths = numbers.each(bound, dd[first:], gg[first:])
    if isinstance(above, OutputLoss):
        hh, curvature = found[n + 1 : n + 2], found[n + 2 : n + 3]
        lengths = numbers.join(_best(gg[:1], curvature, hh, gg[:1], above.price, dd[:1], share, numbers), lengths)
    lengths, still = numbers.column(lengths), n
    longest = numbers.column(numbers.cumprod(numbers.join(numbers.read(above.longest.view(1)), lengths)))[1:]
    if watched:
        rounding, codes = torch.finfo(above.delta.dtype).eps / 2, found[-len(watched) :]
        moves = (longest[k] * gg[k] ** 0.5 > rounding * cc**0.5 for k, cc in zip(watched, codes, strict=True))
        still = next((k for k, is_moving in zip(watched, moves, strict=True) if not is_moving), n)
    return Bounds(dd, gg, lengths, longest, still)


def _best(
    slope: Column, curvature: Column, hh: Column, uu: Column, price: Any, dd: Column, share: Any, numbers: Any
) -> Column:
    """<o, q> / (<q, H q> + kappa |u|^2), at most share |delta| / |H q|, of every code."""

    def best(slope: Any, curvature: Any, hh: Any, uu: Any, dd: Any) -> Any:
        most = share * numbers.sqrt(dd / numbers.maximum(hh, TINY))
        return numbers.minimum(slope / numbers.maximum(curvature + price * uu, TINY), most)

    return numbers.column(numbers.each(best, slope, curvature, hh, uu, dd))


def _search(links: Sequence[Link], above: Above, bounds: Bounds, share: Any, context: Context) -> Search:
    """The best length along u of every code, were its block linear."""
    n, first, numbers = len(links), min(len(links), isinstance(above, OutputLoss)), context.numbers
    a, uu = bounds.lengths[:first], bounds.gg[:first]
    oo = numbers.column(numbers.each(zero, uu))
    if n == first:
        return Search(a, uu, oo, oo, uu[-1:] if n else numbers.read(above.offset_square.view(1)))
    pairs, longest = [], numbers.unbind(numbers.tensor(bounds.longest, dtype=above.delta.dtype))
    for k in range(first, n):
        each, offset = links[k], links[k - 1].offset if k else above.offset
        each.follow(longest[k])
        pairs += [(offset, each.q), (each.u, each.u), (each.q, each.q)]
    found = context.inner_column(pairs)
    oq, own, qq = found[::3], found[1::3], found[2::3]
    uu = numbers.column(numbers.join(uu, own))
    oo = numbers.column(numbers.join(numbers.read(above.offset_square.view(1)), uu[:-1]))
    best = _best(oq, qq, qq, own, 1, bounds.dd[first:n], share, numbers)

    def bounded(best: Any, bound: Any) -> Any:
        return numbers.maximum(numbers.minimum(best, bound), 0)

    def remainder(oo: Any, oq: Any, qq: Any, a: Any) -> Any:
        return numbers.maximum(oo - a * (2 * oq - a * qq), 0)

    best = numbers.column(numbers.each(bounded, best, bounds.lengths[first:n]))
    left = numbers.each(remainder, oo[first:], oq, qq, best)
    lengths, left = numbers.column(numbers.join(a, best)), numbers.column(numbers.join(oo[:first], left))
    return Search(lengths, uu, oo, left, uu[-1:])


def _try(
    links: Sequence[Link], above: Above, search: Search, m: Sequence[Tensor], still: int, context: Context
) -> Trial:
    """Moves the codes by m. Moves below linear blocks need no trial, and codes from `still` on do not move."""
    residuals, states, tried, numbers = [], [], {}, context.numbers
    a = (
        numbers.unbind(numbers.tensor(search.lengths, dtype=above.delta.dtype))
        if len(links) > isinstance(above, OutputLoss)
        else ()
    )
    output = at = None
    for k, each in enumerate(links):
        if k == 0 and isinstance(above, OutputLoss):
            output, state = each.output(m[k + 1], above.output, context)
            at = above.at(output)
            r = at.delta
        else:
            Q, state = (each.q, each.state) if each.exact or k >= still else each.move(m[k + 1])
            r = torch.addcmul(each.delta, Q, a[k], value=-1)
            if Q is not each.q:
                offset = links[k - 1].offset if k else above.offset
                tried[k] = r if offset is each.delta else torch.addcmul(offset, Q, a[k], value=-1)
        residuals.append(r)
        states.append(state)
    left, eps = search.left, torch.finfo(above.delta.dtype).eps
    if tried:
        squares, order = context.inner_column([(r, r) for r in tried.values()]), {k: i for i, k in enumerate(tried)}
        parts = (squares[order[k] : order[k] + 1] if k in tried else left[k : k + 1] for k in range(len(links)))
        left = numbers.column(numbers.join(*parts))

    def rises(left: Any, a: Any, uu: Any, oo: Any) -> Any:
        return (left + a * a * uu <= oo * (1 + 16 * eps)) ^ True  # which NaN is too

    found = numbers.column(numbers.each(rises, left, search.lengths, search.uu, search.oo))
    if isinstance(above, OutputLoss) and at is not None:
        value, before = (numbers.read(each.value.view(1)) for each in (at, above.start))

        def loss_rises(value: Any, before: Any, a: Any, uu: Any) -> Any:
            return value + above.price / 2 * a * a * uu > before + eps * (16 * abs(before) + above.loss.rounding)

        first = numbers.each(loss_rises, value, before, search.lengths[:1], search.uu[:1])
        found = numbers.column(numbers.join(first, found[1:]))
    if not all(each.checked for each in links):
        parts = (numbers.each(lambda r, each=each: r & each.checked, found[k : k + 1]) for k, each in enumerate(links))
        found = numbers.column(numbers.join(*parts))
    return Trial(residuals, states, left, found, output, at)


def _reject(
    links: Sequence[Link], above: Above, search: Search, scales: Column, trial: Trial, context: Context
) -> tuple[Column, Trial]:
    """The scales and the outcome without the steps that raise f, and without those below them: the residual of a block
    whose code stays is delta; that of one further down is delta - a q, as for a linear block."""
    numbers, n = context.numbers, len(links)
    always = numbers.each(lambda r: r | True, trial.rises[:1])
    accepts = numbers.cumprod(numbers.join(always, numbers.each(numbers.negate, trial.rises)))
    accepts = numbers.column(numbers.each(lambda product: product > 0, accepts))
    before, accepted = accepts[:-1], accepts[1:]  # for every code: have those above moved, and has it?
    residuals, states = [], []
    here, ahead = ([torch.as_tensor(flag, device=above.delta.device) for flag in each] for each in (accepted, before))
    a = numbers.unbind(numbers.tensor(search.lengths, dtype=above.delta.dtype))
    for k, each in enumerate(links):
        stays = torch.where(ahead[k], each.delta, torch.addcmul(each.delta, each.q, a[k], value=-1))
        residuals.append(torch.where(here[k], trial.residuals[k], stays))
        states.append(each.state if each.exact else select(here[k], trial.states[k], each.state))
    stay = numbers.each(numbers.where, before, search.oo, search.left)
    left = numbers.column(numbers.each(numbers.where, accepted, trial.left, stay))
    output, at = trial.output, trial.at
    if isinstance(above, OutputLoss) and at is not None and output is not None:
        output = torch.where(here[0], output, above.output)
        value = torch.where(here[0].to(at.value.device), at.value, above.start.value)
        at = Evaluation(value, torch.where(here[0], at.delta, above.start.delta), at.hessian)
    moved = numbers.each(operator.mul, scales[1 : n + 1], accepted)
    scales = numbers.column(numbers.join(scales[:1], moved, scales[n + 1 :]))
    return scales, Trial(residuals, states, left, trial.rises, output, at)
