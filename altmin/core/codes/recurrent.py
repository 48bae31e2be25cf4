"""Codes in time: the Elman network h_t = tanh(c_t), c_t = U x_t + W h_{t-1} + b, read out as z_t = V h_t.

Every step of time has a code c_t. z is a code too; it moves first, and the target of its own block is to move z_t by -m
delta_t. With the codes at c_t - m v_t and q_t = (tanh(c_t) - tanh(c_t - m v_t)) / m, their part of f, divided by mu m^2
/ n, is

    2 phi(v) = sum_t |delta_t - V q_t|^2 + |v_t - W q_{t-1}|^2,        q_0 = 0.

All steps of time move as one code, v = a g, with one length a for the mini-batch. The direction is that of backprop
through time, in the loss's own scale:

    g_t = s_t (V^T delta_t + W^T g_{t+1}),        s_t = 1 - h_t^2.

The length is the exact line search of phi, were tanh linear (q_t = s_t v_t), with a bounded share:

    a = max(0, <delta, V s g>) / (|V s g|^2 + sum_t |g_t - W s_{t-1} g_{t-1}|^2),        a |V s g| <= share |delta|.

A step that would raise phi is rejected. With Q = q / a the residual of the readout's weights is delta_t - a V Q_t and
that of the recurrent layer's weights g_t - W Q_{t-1}, or, if weights go first, delta_t and g_t; the latter are, for the
exact sweep and as share goes to 0, the deltas of backprop through time.
"""

import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from altmin.calculus import Linear, Recurrence, Steps
from altmin.calculus.base import divisor
from altmin.calculus.context import Context
from altmin.calculus.numbers import TINY, safe_div, select
from altmin.calculus.products import matmul
from altmin.calculus.scan import backward_scan
from altmin.common.errors import demand
from altmin.core.chain import Chain, State
from altmin.core.codes.gradient import GradientCodes
from altmin.core.codes.links import Above, Moves, Segment, Upstream, hidden_problem, joined

SWEEPS = ("exact", "parallel")
SMALL = 32
"""Hidden units up to which a scan over time is faster on a GPU than one step after the other."""


class RecurrentCodes(GradientCodes):
    """Codes in time by one of two sweeps; all other codes, and the options, as in `GradientCodes`.

    sweep="exact": the direction g of backprop through time, from the last step to the first; on a GPU and with up to
    `SMALL` hidden units many steps at once (`calculus.scan`).

    sweep="parallel": an approximation in `rounds` rounds over all steps at once, without a loop over time. In the first
    round g_{t+1} is 0, in later ones that of the previous round: backprop through time, truncated to `rounds` steps.
    With as many rounds as steps it is exact.

    Further steps on the codes start where the last one ended: along the sweep of the remaining delta, minus v_t - W
    q_{t-1}. l1 is not supported.
    """

    def __init__(self, sweep: str = "exact", rounds: int = 1, order: str = "weights-first", **options: Any):
        super().__init__(order=order, **options)
        if sweep not in SWEEPS:
            raise ValueError(f'the sweep over time is "exact" or "parallel", given {sweep!r}')
        demand("RecurrentCodes", "rounds", rounds, low=1, whole=True)
        if sweep != "parallel" and rounds != 1:
            raise ValueError(f'rounds belong to sweep="parallel"; an exact sweep is one pass, given {rounds!r}')
        if self.l1:
            raise ValueError(
                f"codes in time take no l1, given {self.l1!r}; leave it out, or give one to the weight rule"
            )
        self.sweep, self.rounds = sweep, rounds

    def check(self, chain: Chain) -> None:
        """ValueError for a chain in which codes in time are not followed by a block that sees each step by itself."""
        for l, (below, block) in enumerate(itertools.pairwise(chain), start=1):
            stepwise = not block.prelude.maps and isinstance(block.core.maps[0], Linear | Recurrence)
            if isinstance(below.core.maps[0], Recurrence) and not (stepwise and l < len(chain) - 1):
                last = ", which is the last block" if l == len(chain) - 1 else ""
                raise ValueError(
                    "after Recurrent comes a linear map of every step, altmin.Readout or another Recurrent, "
                    f"and then at least one block more; given {block}{last}"
                )

    def __call__(self, segment: Segment, above: Above) -> Moves:
        """As in `GradientCodes`; codes in time also change the input of their own block, h_{t-1}."""
        states = list(segment.states)
        in_time = [i for i in range(1, len(states)) if isinstance(segment.blocks[i - 1].core.maps[0], Recurrence)]
        parts, end, moved = [], len(states), None
        while end:
            first = max((i + 1 for i in in_time if i < end), default=0)
            if first < end:
                part = super().__call__(segment._replace(states=states).part(first, end), above)
                if moved is not None:  # |g|^2 of codes in time, not the square of their remaining offset
                    last = segment.context.numbers.read(moved.view(1))
                    numbers = segment.context.numbers
                    part = part._replace(moved=numbers.column(numbers.join(part.moved[:-1], last)))
                moved = None
            else:
                first = end - 1
                part, states[first - 1], moved = self._in_time(segment._replace(states=states), first, above)
            parts.append(part)
            above, end = part.below or above, first
        return joined(parts)

    def _in_time(self, segment: Segment, i: int, above: Above) -> tuple[Moves, State, Tensor]:
        """Moves the codes in time below block i: the remaining problem of block i, the moved state of the
        recurrent block below it, and the squared norm of that block's own move."""
        assert isinstance(above, Upstream)
        context, states = segment.context, segment.states
        seen = states[i].core[0]  # by the block above: h, or the saved state of another recurrent layer
        steps: Steps = states[i - 1].core[0]
        time = InTime(steps, above, segment.theta[i][0], segment.theta[i - 1][1], context)
        point = self._descend_in_time(time)
        saved = seen._replace(x=point.h) if isinstance(seen, Steps) else point.h.transpose(0, 1)
        codes_first, m = self.order == "codes-first", above.scale
        problem = hidden_problem([saved], point.delta if codes_first else above.delta, above.delta, m, context)
        (moved,) = context.inners([(point.u, point.u)])
        left, scale = point.left.transpose(0, 1), m * point.a
        below = Upstream(left if codes_first else point.u.transpose(0, 1), scale, scale, left, point.square)
        costs = context.numbers.read(m * m * torch.stack([point.above, above.offset_square]))
        state = State(states[i - 1].prelude, [steps._replace(h=point.h)])
        return Moves([problem], costs[:1], costs[1:], below), state, scale * scale * moved

    def _descend_in_time(self, time: "InTime") -> "Point":
        """Lowers phi from v = 0 by `steps` steps. After several, u has the length of the first direction."""
        here, w = time.start, None
        for left in reversed(range(self.steps)):
            delta = time.rows(here.delta)
            g = self._sweep(time, delta, here.h)
            g = g if here.rest is None else g - here.a * here.left
            w = g if w is None else g + self.momentum * w
            if isinstance(self.lr, str):
                a, stay = self._line_search(time, here, delta, w)
            else:
                a, stay = w.new_zeros(()) + self.lr, None
            new = time.point(w, a) if here.rest is None else time.point(*here.further(a, w, time.context))
            ok = torch.ones_like(a, dtype=torch.bool)
            if stay is not None:
                ok = ~(new.value > stay.value * (1 + 16 * torch.finfo(a.dtype).eps))
                new = select(ok, new, stay) if not time.context.eager else new if bool(ok) else stay
            fell, here = here.value - new.value, new
            if left == 0 or (time.context.eager and not bool(ok)):
                break
            if self.tolerance and bool(fell <= self.tolerance * here.value.abs()):
                break
        return here

    def _sweep(self, time: "InTime", delta: Tensor, h: Tensor) -> Tensor:
        """g_t = s_t (V^T delta_t + W^T g_{t+1}) at h."""
        pulled = matmul(delta, time.V)
        if self.sweep == "exact":
            chunk = None if h.is_cuda and h.shape[-1] <= SMALL else len(h)
            return backward_scan(pulled, 1 - h * h, time.W, chunk)
        g = _times_slope(pulled, h)
        for _ in range(1, self.rounds):
            total = pulled.clone()
            total[:-1] += matmul(g[1:], time.W)
            g = _times_slope(total, h)
        return g

    def _line_search(self, time: "InTime", here: "Point", delta: Tensor, w: Tensor) -> tuple[Tensor, "Point"]:
        """The best length along w, were tanh linear, and the point to keep if it is too long."""
        q = _times_slope(w, here.h)
        Vq, (rest, square) = matmul(q, time.V.mT), time.misfit(w, q, -torch.ones_like(time.above.scale))
        linear = Point(w, torch.zeros_like(square), here.h, here.delta, here.above, rest, square)
        first = here.rest is None
        left = time.rows(time.above.offset) if first else delta
        gain, bend, dd = time.context.inners([(left, Vq), (Vq, Vq), (time.above.delta, time.above.delta)])
        if not first:
            gain = gain - here.a * time.context.inners([(here.left, linear.left)])[0]
        a = torch.minimum(safe_div(gain.clamp_min(0), bend + square), self.share * safe_div(dd, bend).sqrt())
        return a, linear if first else here


class Point(NamedTuple):
    """Codes in time that have moved by -m a u: their h, the remaining delta above, the remaining squared offset above,
    and that in time.

    rest: u_t - W Q_{t-1} after the first step, at which it is u_1; None before any move. square: that of all steps.
    """

    u: Tensor
    a: Tensor
    h: Tensor
    delta: Tensor
    above: Tensor
    rest: Tensor | None
    square: Tensor

    @property
    def left(self) -> Tensor:
        """u_t - W Q_{t-1} at all steps."""
        assert self.rest is not None
        return torch.cat([self.u[:1], self.rest])

    @property
    def value(self) -> Tensor:
        """phi."""
        return (self.above + self.a * self.a * self.square) / 2

    def further(self, a: Tensor, w: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """The u, as long as the present one, and the length of the move by a w from here."""
        v = self.a * self.u + a * w
        vv, uu = context.inners([(v, v), (self.u, self.u)])
        length = safe_div(vv, uu).sqrt()
        return torch.where((length > TINY).to(v.device), v / length.clamp_min(TINY), self.u), length


class InTime:
    """The objective phi of a batch's codes in time. Its tensors are (steps, samples, features)."""

    def __init__(self, steps: Steps, above: Upstream, V: Tensor, W: Tensor, context: Context):
        self.above, self.h, self.real, self.V, self.W, self.context = above, steps.h, steps.real, V, W, context
        zero = torch.zeros_like(above.scale)
        self.start = Point(steps.h, zero, steps.h, above.delta, above.offset_square, None, zero)

    def rows(self, delta: Tensor) -> Tensor:
        """delta (samples, steps, features) step by step, 0 in the padding, which has no codes."""
        delta = delta.transpose(0, 1).contiguous()
        return delta if self.real is None else delta * self.real

    def point(self, u: Tensor, a: Tensor) -> Point:
        e = divisor(self.above.scale * a)
        change = _change(self.h, u, e)
        Vq = matmul(change, self.V.mT).transpose(0, 1) * (-a / e)
        left = self.above.offset - Vq
        (above,) = self.context.inners([(left, left)])
        rest, square = self.misfit(u, change, 1 / e)
        return Point(u, a, change.add_(self.h), self.above.delta - Vq, above, rest, square)

    def misfit(self, u: Tensor, change: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
        """`rest` and `square` of a point with -q = factor * change."""
        rest = u[1:] + factor * matmul(change[:-1], self.W.mT)
        rest = rest if self.real is None else rest * self.real[1:]
        first, others = self.context.inners([(u[:1], u[:1]), (rest, rest)])
        return rest, first + others


def _change(h: Tensor, u: Tensor, e: Tensor) -> Tensor:
    """tanh(c - e u) - tanh(c) = (1 - h^2) v / (1 + h v) with v = tanh(-e u), without cancellation, from h = tanh(c)."""
    v = (u * -e).tanh_()
    one = h.new_full((), 1 + torch.finfo(h.dtype).eps)  # where |h| and |v| are 1 there is no change
    return _times_slope(v, h).div_(torch.addcmul(one, h, v))


def _times_slope(v: Tensor, h: Tensor) -> Tensor:
    """(1 - h^2) v in one pass over memory."""
    return torch.ops.aten.tanh_backward(v, h)
