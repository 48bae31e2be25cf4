"""The code update (Algorithm 2): one exact step for every code, in phases.

Write F for a block, J for its Jacobian at the encoded code c below it, and delta for the gradient that reaches its
output. At the top delta is the gradient of the mean loss. All sums are over the whole mini-batch. The code below moves
to c - m a u, where m is the product of the lengths a of the codes above, along

    g = J^T delta,        u = g, stopped at the kinks of a piecewise linear block.

What it hands down as the next delta is g itself, in the loss's own scale: deltas neither shrink nor grow by the
lengths, however deep the network. The length lowers f most along u, were F linear. With q = J u, the Hessian H of what
lies above (I below another code), the price kappa of a move (1 below another code, 2 mu / n below the loss of n
samples) and the direction o in which the code above has itself moved (delta, or its u)

    a = <o, q> / (<q, H q> + kappa |u|^2),        a |H q| <= share |delta|.

The bounded share keeps what is left for the block's own weights,

    r = delta - a Q,        Q = (F(c) - F(c - m a u)) / (m a),

close to delta; below the loss r is the loss's gradient at the moved output. The gradient of the block's parameters is
that of <r, F> at the moved code: as share goes to 0, backprop's. A step that would raise f is not taken, nor are those
below it.

Deltas do not depend on lengths. So the phases are: every g; every |g|^2, which bounds the lengths; every u and q; every
inner product, in one vector with an entry for each code, and from it every length; every moved code; one comparison.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from altmin.calculus.context import Context
from altmin.calculus.numbers import TINY, select
from altmin.common.errors import demand
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
from altmin.core.codes.printed import PrintedSteps
from altmin.core.losses import Evaluation

ORDERS = ("codes-first", "weights-first")
LONGEST = 1e15
"""A fixed step beyond this has no meaning, and its products are not finite."""


class GradientCodes:
    """Gradient steps on each code, one length for the whole mini-batch.

    steps: how many, at most. lr: "exact" for the best step along the gradient, or a number for the paper's fixed step.
    momentum: of the steps on one code. tolerance: stop a code's steps once they lower its objective by less than this
    fraction. l1: weight of |c|_1, a term of the loss for each code, by a proximal step. share: how much of the gradient
    at a block's output an exact step may take away from its weights, from 0, where codes do not move and gradients are
    backprop's, to 1, the full step. order: "codes-first" fits hidden weights to what is left once the codes below have
    moved (r = delta - a Q), "weights-first" to all that is wanted of them (r = delta).

    With lr="exact" f never rises: a step that would raise it is not taken.
    """

    def __init__(
        self,
        steps: int = 1,
        lr: float | str = "exact",
        momentum: float = 0.0,
        tolerance: float = 0.0,
        l1: float = 0.0,
        share: float = 0.1,
        order: str = "codes-first",
    ):
        if isinstance(lr, str):
            if lr != "exact":
                raise ValueError(f'the code step lr is "exact" or a number above zero, given {lr!r}')
        else:
            demand("GradientCodes", "lr", lr, above=True)
            if lr > LONGEST:
                raise ValueError(f"lr of GradientCodes is at most {LONGEST:g}, given {lr!r}")
        demand("GradientCodes", "steps", steps, low=1, whole=True)
        for name, value in (("momentum", momentum), ("tolerance", tolerance), ("l1", l1), ("share", share)):
            demand("GradientCodes", name, value)
        if share > 1:
            raise ValueError(f"share of GradientCodes lies between 0 and 1, given {share!r}")
        if order not in ORDERS:
            raise ValueError(f"order of GradientCodes is {' or '.join(map(repr, ORDERS))}, given {order!r}")
        self.steps, self.momentum, self.tolerance, self.l1, self.share = steps, momentum, tolerance, l1, share
        self.lr: Any = lr
        self.order = order

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({options})"

    def __call__(self, segment: Segment, above: Above) -> Moves:
        """Moves the codes below the blocks of a segment, from the last to the first."""
        if self.steps > 1 or not isinstance(self.lr, str) or self.l1:
            return PrintedSteps(self)(segment, above)
        links = _gradients(segment, above)
        if not links:
            return unmoved(segment, above)
        context, codes_first = segment.context, self.order == "codes-first"
        bounds = _bounds(links, above, self.share, context)
        moving = links if codes_first else links[: bounds.still]  # below a code that stays, weights-first needs no jvp
        search = _search(moving, above, bounds, self.share, context)
        scales = above.scale * cumulative_product(search.lengths)
        trial = _try(moving, above, search, scales, bounds.still, context)
        if moving and not (context.eager and bool(trial.accepts.all())):
            scales, trial = _reject(moving, above, search, scales, trial)
        scales = torch.cat([above.scale.view(1), scales, scales.new_zeros(len(links) - len(moving))])
        problems = []
        for k, each in enumerate(links):
            state, r = (trial.states[k], trial.residuals[k]) if k < len(moving) else (each.state, each.delta)
            state = each.move(scales[k + 1])[1] if each.exact and k < len(moving) else state
            r = r if codes_first else each.delta
            problems.append(hidden_problem(state.core, r, each.delta, scales[k], context))
        if trial.at is not None and trial.output is not None and isinstance(above, OutputLoss):
            problems[0] = above.problem(problems[0].saved, trial.at, trial.output, context)
        return _moves(segment, above, links[-1], problems, scales, bounds.longest[-1], search, trial)

    def why_not_captured(self) -> str:
        """Why the steps cannot be captured as a CUDA graph; empty if they can."""
        return (
            "with a tolerance the processor decides when a code's steps end; give tolerance=0" if self.tolerance else ""
        )


class Bounds(NamedTuple):
    """What is known of the lengths before any jvp of hidden blocks, from the top down, an entry for each code.

    dd, gg: |delta|^2 above the code, and |g|^2. lengths: what no length exceeds; below the loss the length itself.
    longest: the bounds on the scales, which are products of lengths. still: the number of codes above the first whose
    move would be within its rounding, as far as that may be read.
    """

    dd: Tensor
    gg: Tensor
    lengths: Tensor
    longest: Tensor
    still: int


class Search(NamedTuple):
    """The line searches of consecutive codes, from the top down, an entry for each code.

    lengths: a. uu: |u|^2. oo: |o|^2; 0 where the loss lies above. left: |o - a q|^2, what a linear block leaves of it.
    """

    lengths: Tensor
    uu: Tensor
    oo: Tensor
    left: Tensor


class Trial(NamedTuple):
    """Codes that have moved by these lengths. residuals, states: of the blocks above them what is left of delta, and
    their states. left: |o - a Q|^2. accepts: whether f has not risen. output, at: the moved output and the loss there,
    None where another code lies above."""

    residuals: list[Tensor]
    states: list[State]
    left: Tensor
    accepts: Tensor
    output: Tensor | None
    at: Evaluation | None


def _moves(
    segment: Segment,
    above: Above,
    last: Link,
    problems: list[LocalProblem],
    scales: Tensor,
    longest: Tensor,
    search: Search,
    trial: Trial,
) -> Moves:
    """The outcome of a step. problems, scales: of the blocks from the top down; scales has that of the last code too,
    of which `longest` is the bound."""
    n = len(scales)
    # the squares of offsets, and what is left of them: below the last code that moves, all
    square = search.uu[-1:] if len(search.uu) else above.offset_square.view(1)
    oo = torch.cat([search.oo, square, scales.new_zeros(n)])[:n]
    left = torch.cat([trial.left, oo[len(trial.left) :]])
    costs, moved = scales * scales * left, scales * scales * oo
    if trial.at is not None:
        costs = torch.cat([trial.at.value.view(1), costs[1:]])
    below = Upstream(last.below, scales[-1], longest, last.offset, oo[-1])
    if not segment.begins:
        return Moves(problems[::-1], costs[:-1].flip(0), moved[:-1].flip(0), below)
    problems.append(hidden_problem(segment.states[0].core, below.delta, below.delta, below.scale, segment.context))
    return Moves(problems[::-1], costs.flip(0), moved.flip(0), None)


def _gradients(segment: Segment, above: Above) -> list[Link]:
    """The codes below the blocks of a segment, from the top down, with the gradients at them. Below the loss no bound
    on a length is known without a jvp, so that its block is not treated as piecewise linear."""
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
    n, pairs, watched = len(links), [(above.delta, above.delta)], []
    for each in links:
        pairs.append((each.g, each.g))
    if isinstance(above, OutputLoss):
        links[0].follow(above.longest)
        Hq = above.start.hessian(links[0].q)
        pairs += [(Hq, Hq), (links[0].q, Hq)]
    for k in range(isinstance(above, OutputLoss), n if context.eager else 0):
        if not links[k].exact:
            watched.append(k)
            pairs.append((links[k].code, links[k].code))
    found = context.inners(pairs)
    dd, gg = found[:n], found[1 : n + 1]
    lengths = torch.minimum(dd / (gg + dd).clamp_min(TINY), share * dd / gg.clamp_min(TINY))
    if isinstance(above, OutputLoss):
        hh, curvature = found[n + 1].clamp_min(TINY), found[n + 2]
        best = gg[0] / (curvature + above.price * gg[0]).clamp_min(TINY)
        best = torch.minimum(best, share * (dd[0] / hh).sqrt())
        lengths = torch.cat([best.view(1), lengths[1:]])
    longest, still = above.longest * cumulative_product(lengths), n
    if watched:
        rounding = torch.finfo(found.dtype).eps / 2 * found[-len(watched) :].sqrt()
        stays = ((longest * gg.sqrt())[watched] <= rounding).tolist()
        still = watched[stays.index(True)] if any(stays) else n
    return Bounds(dd, gg, lengths, longest, still)


def _search(links: Sequence[Link], above: Above, bounds: Bounds, share: Any, context: Context) -> Search:
    """The best length along u of every code, were its block linear."""
    n, first = len(links), min(len(links), isinstance(above, OutputLoss))
    a, uu, oo = bounds.lengths[:first], bounds.gg[:first], torch.zeros_like(bounds.gg[:first])
    if n == first:
        return Search(a, uu, oo, oo)
    pairs = []
    for k in range(first, n):
        each, offset = links[k], links[k - 1].offset if k else above.offset
        each.follow(bounds.longest[k])
        pairs += [(each.u, each.u), (each.q, each.q), (offset, each.q)]
    hidden_uu, qq, oq = context.inners(pairs).view(-1, 3).unbind(1)
    uu = torch.cat([uu, hidden_uu])
    oo = torch.cat([above.offset_square.view(1), uu[:-1]])
    slope = oq.clamp_min(0)
    best = torch.minimum(slope / (qq + hidden_uu).clamp_min(TINY), bounds.lengths[first:n])
    best = torch.minimum(best, share * (bounds.dd[first:n] / qq.clamp_min(TINY)).sqrt())
    left = (oo[first:] - best * (2 * slope - best * qq)).clamp_min(0)
    return Search(torch.cat([a, best]), uu, oo, torch.cat([oo[:first], left]))


def _try(links: Sequence[Link], above: Above, search: Search, scales: Tensor, still: int, context: Context) -> Trial:
    """Moves the codes. Those below linear blocks need not be tried, and those from `still` on do not move."""
    residuals, states, tried, judged, lengths = [], [], {}, [], search.lengths
    output = at = None
    for k, each in enumerate(links):
        if k == 0 and isinstance(above, OutputLoss):
            output, state = each.output(scales[k], above.output, context)
            at = above.at(output)
            r = at.delta
        else:
            Q, state = (each.q, each.state) if each.exact or k >= still else each.move(scales[k])
            r = each.delta - lengths[k] * Q
            if Q is not each.q:
                offset = links[k - 1].offset if k else above.offset
                tried[k] = r if offset is each.delta else offset - lengths[k] * Q
        residuals.append(r)
        states.append(state)
        judged.append(each.judged)
    left, eps = search.left, torch.finfo(search.left.dtype).eps
    if tried:
        squares = dict(zip(tried, context.inners([(r, r) for r in tried.values()]).unbind(), strict=True))
        left = torch.stack([squares.get(k, each) for k, each in enumerate(left.unbind())])
    rises = left + lengths * lengths * search.uu > search.oo * (1 + 16 * eps)
    if isinstance(above, OutputLoss) and at is not None:
        before = above.start.value
        price = above.price * lengths[0] * lengths[0] * search.uu[0]
        worse = torch.add(at.value, price, alpha=0.5) > torch.add(
            before, before.abs() + above.loss.rounding / 16, alpha=16 * eps
        )
        rises = torch.cat([worse.view(1), rises[1:]])
    if not all(judged):
        rises = torch.stack([each & counts for each, counts in zip(rises.unbind(), judged, strict=True)])
    return Trial(residuals, states, left, ~rises, output, at)


def _reject(links: Sequence[Link], above: Above, search: Search, scales: Tensor, trial: Trial) -> tuple[Tensor, Trial]:
    """The scales and the outcome without the steps that are not accepted, and without those below them: a block whose
    code stays is left with delta; one further down with what a linear block leaves, delta - a q."""
    every = cumulative_product(trial.accepts.int())
    before = torch.cat([torch.ones_like(every[:1]), every[:-1]]).bool()
    every = every.bool()
    residuals, states = [], []
    here, ahead = (flags.to(above.delta.device) for flags in (every, before))
    for k, each in enumerate(links):
        stays = torch.where(ahead[k], each.delta, each.delta - search.lengths[k] * each.q)
        residuals.append(torch.where(here[k], trial.residuals[k], stays))
        states.append(each.state if each.exact else select(here[k], trial.states[k], each.state))
    left = torch.where(every, trial.left, torch.where(before, search.oo, search.left))
    output, at = trial.output, trial.at
    if isinstance(above, OutputLoss) and at is not None and output is not None:
        output = torch.where(here[0], output, above.output)
        value = torch.where(every[0], at.value, above.start.value)
        at = Evaluation(value, torch.where(here[0], at.delta, above.start.delta), at.hessian)
    return scales * every, Trial(residuals, states, left, trial.accepts, output, at)


def cumulative_product(a: Tensor) -> Tensor:
    """a_1, a_1 a_2, ...; of few factors one by one, which a compiler fuses with what comes before and after.

    >>> cumulative_product(torch.tensor([2.0, 3.0, 4.0]))
    tensor([ 2.,  6., 24.])
    """
    if not 0 < len(a) <= 8:
        return a.cumprod(0)
    found = [a[0]]
    for k in range(1, len(a)):
        found.append(found[-1] * a[k])
    return torch.stack(found)
