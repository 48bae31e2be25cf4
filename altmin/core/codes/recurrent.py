"""Codes in time: the Elman network h_t = tanh(c_t), c_t = U x_t + W h_{t-1} + b, read out as z_t = V h_t.

Every step of time has a code c_t. z is a code too; it moves first and asks its own block to move z_t by -m delta_t.
With the codes at c_t - m v_t and q_t = (tanh(c_t) - tanh(c_t - m v_t)) / m, what f has of them is, over mu m^2 / n,

    2 phi(v) = sum_t |delta_t - V q_t|^2 + |v_t - W q_{t-1}|^2,        q_0 = 0.

All steps of time move as one code, v = a g, with one length a for the mini-batch. The direction is that of backprop
through time, in the loss's own scale:

    g_t = s_t (V^T delta_t + W^T g_{t+1}),        s_t = 1 - h_t^2.

The length is the exact line search of phi, were tanh linear (q_t = s_t v_t), with a bounded share:

    a = max(0, <delta, V s g>) / (|V s g|^2 + sum_t |g_t - W s_{t-1} g_{t-1}|^2),        a |V s g| <= share |delta|.

A step that would raise phi is not taken. With Q = q / a the readout's weights are left with delta_t - a V Q_t and those
of the recurrent layer with g_t - W Q_{t-1}, or, if weights go first, with delta_t and g_t; the latter are, for the
sequential sweep and as share goes to 0, the deltas of backprop through time.
"""

import itertools
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from altmin.calculus import Linear, Number, Recurrence, Saved, Steps
from altmin.calculus.base import divisor
from altmin.calculus.numbers import TINY, along, at_least, inner, least, over, root, select, size
from altmin.calculus.products import matmul
from altmin.common.errors import demand
from altmin.common.fusing import fusible
from altmin.core.chain import Chain, Theta
from altmin.core.codes.above import Above, Ask, At, Residual
from altmin.core.codes.gradient import GradientCodes, Trace
from altmin.core.codes.linesearch import judged

SWEEPS = ("parallel", "sequential")


class RecurrentCodes(GradientCodes):
    """Codes in time by one of two sweeps; all other codes, and the options, as in `GradientCodes`.

    sweep="sequential": the direction g from the last step to the first, as in backprop through time.

    sweep="parallel": the same in `rounds` rounds over all steps at once, without a loop over time. In the first g_{t+1}
    is 0, in each later one that of the round before: backprop through time, truncated to `rounds` steps. As many rounds
    as steps are the sequential sweep.

    Further steps on the codes start where the last one ended: along the sweep of what is left there of delta, minus
    v_t - W q_{t-1}. l1 is not offered.
    """

    def __init__(
        self,
        sweep: str = "parallel",
        rounds: int = 1,
        steps: int = 1,
        lr: float | str = "exact",
        momentum: float = 0.0,
        tolerance: float = 0.0,
        l1: float = 0.0,
        share: float = 0.1,
        order: str = "weights-first",
    ):
        super().__init__(steps, lr, momentum, tolerance, l1, share, order)
        if sweep not in SWEEPS:
            raise ValueError(f'the sweep over time is "parallel" or "sequential", given {sweep!r}')
        demand("RecurrentCodes", "rounds", rounds, low=1, whole=True)
        if sweep == "sequential" and rounds != 1:
            raise ValueError(f'rounds belong to sweep="parallel"; a sequential sweep is one pass, given {rounds!r}')
        if l1:
            raise ValueError(f"codes in time take no l1, given {l1!r}; leave it out, or give one to the weight rule")
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

    def move(self, chain: Chain, theta: Theta, trace: Trace, l: int, above: Above) -> tuple[Residual, Ask]:
        """As in `GradientCodes`; codes in time also change what their own block gets, h_{t-1}."""
        if not isinstance(chain.blocks[l - 1].core.maps[0], Recurrence):
            return super().move(chain, theta, trace, l, above)
        assert isinstance(above, Ask)
        trace.values.pop()
        seen = trace.states.pop().core[0]  # by the block above: h, or the memory of another recurrent layer
        steps: Steps = trace.states[-1].core[0]
        point = self._descend_in_time(InTime(steps, above, theta[l][0], theta[l - 1][1]))
        trace.states[-1].core[0] = steps._replace(h=point.h)
        saved = seen._replace(x=point.h) if isinstance(seen, Steps) else point.h.transpose(0, 1)
        return above.residual([saved], point.at, self.order), AskInTime(point, above.scale, self.order)

    def _descend_in_time(self, time: "InTime") -> "Point":
        """Lowers phi from v = 0 by `steps` steps. After several, u has the length of the first direction."""
        here, w = time.start, None
        for left in reversed(range(self.steps)):
            asked = time.rows(here.at.delta)
            g = self._sweep(time, asked, here.h)
            g = g if here.u is None else along(g, -here.a, here.left)
            w = g if w is None else g + self.momentum * w
            a, stay = self._line_search(time, here, asked, w) if self.lr == "exact" else (self.lr, None)
            new = time.point(w, a) if here.u is None else time.point(*here.further(a, w))
            ok: Any = True
            if stay is not None:
                ok = judged(stay.value, new.value, 0.0, 0.0, 0.0, *time.above.slack)[0]
                new = Point(*(p if p is q else select(ok, p, q) for p, q in zip(new, stay, strict=True)))
            fell, here = here.value - new.value, new
            if left == 0 or ok is False or (self.tolerance and bool(fell <= self.tolerance * size(here.value))):
                break
        return here

    def _sweep(self, time: "InTime", asked: Tensor, h: Tensor) -> Tensor:
        """g_t = s_t (V^T delta_t + W^T g_{t+1}) at h, of what is asked of z_t."""
        pulled = matmul(asked, time.V)
        if self.sweep == "sequential":
            found = [_times_slope(pulled[-1], h[-1])]
            for t in reversed(range(len(h) - 1)):
                found.append(_times_slope(pulled[t] + matmul(found[-1], time.W), h[t]))
            return torch.stack(found[::-1])
        g = _times_slope(pulled, h)
        for _ in range(1, self.rounds):
            asked = pulled.clone()
            asked[:-1] += matmul(g[1:], time.W)
            g = _times_slope(asked, h)
        return g

    def _line_search(self, time: "InTime", here: "Point", asked: Tensor, w: Tensor) -> tuple[Number, "Point"]:
        """The best length along w, were tanh linear, and the point to stay at if it is too long."""
        q = _times_slope(w, here.h)
        Vq, (rest, square) = matmul(q, time.V.mT), time.misfit(w, q, -1.0)
        linear = Point(w, 0.0, here.h, here.at, rest, square)
        left = asked if here.u is not None or not isinstance(time.above, AskInTime) else time.rows(time.above.left)
        gain, bend = inner(left, Vq), inner(Vq, Vq)
        if here.u is not None:
            gain = gain - here.a * inner(here.left, linear.left)
        share = over(self.share * root(time.above.square), root(bend))
        a = least(over(at_least(gain, 0.0), bend + square), share)
        return a, linear._replace(a=0 * a) if here.u is None else here


class Point(NamedTuple):
    """Codes in time that have moved by -m a u: their h, and what is left above.

    rest: u_t - W Q_{t-1} after the first step, at which it is u_1. square: that of all steps.
    """

    u: Any
    a: Number
    h: Tensor
    at: At
    rest: Any
    square: Number

    @property
    def left(self) -> Tensor:
        """u_t - W Q_{t-1} at all steps."""
        return torch.cat([self.u[:1], self.rest])

    @property
    def value(self) -> Number:
        """phi."""
        return self.at.value + self.a * self.a / 2 * self.square

    def further(self, a: Number, w: Tensor) -> tuple[Tensor, Number]:
        """The u, as long as the present one, and the length of the move by a w from here."""
        v = along(self.a * self.u, a, w)
        length = root(over(inner(v, v), inner(self.u, self.u)))
        return select(length > TINY, v / at_least(length, TINY), self.u), length


class InTime:
    """The objective phi of a batch's codes in time. Its tensors are (steps, samples, features)."""

    def __init__(self, steps: Steps, above: Ask, V: Tensor, W: Tensor):
        self.above, self.h, self.real, self.V, self.W = above, steps.h, steps.real, V, W
        self.start = Point(None, 0.0, steps.h, above.start, None, 0.0)

    def rows(self, delta: Tensor) -> Tensor:
        """delta (samples, steps, features) step by step, 0 in the padding, which has no codes."""
        delta = delta.transpose(0, 1).contiguous()
        return delta if self.real is None else delta * self.real

    def point(self, u: Tensor, a: Number) -> Point:
        e = divisor(self.above.scale * a)
        change = _change(self.h, u, e)
        at = self.above.at(along(self.above.position, a / e, matmul(change, self.V.mT).transpose(0, 1)))
        rest, square = self.misfit(u, change, 1 / e)
        return Point(u, a, change.add_(self.h), at, rest, square)

    def misfit(self, u: Tensor, change: Tensor, factor: Number) -> tuple[Tensor, Number]:
        """`rest` and `square` of a point with -q = factor * change."""
        return _misfit(u, matmul(change[:-1], self.W.mT), factor, None if self.real is None else self.real[1:])


class AskInTime(Ask):
    """What codes in time ask of their block, c_t = U x_t + W h_{t-1} + b, of which h_{t-1} has moved too.

    delta: g_t if weights go first, else left. left: g_t - W Q_{t-1}, what f leaves to the codes below and to the
    weights; lefts: its square. moved: |g|^2. All (samples, steps, features).
    """

    def __init__(self, point: Point, m: Number, order: str):
        self.point, self.lefts, self.moved = point, point.square, inner(point.u, point.u)
        delta, square = (point.u.transpose(0, 1), self.moved) if order == "weights-first" else (self.left, self.lefts)
        super().__init__(delta, square, m * point.a, m * point.a)

    @property
    def position(self) -> Tensor:
        return self.left

    @cached_property
    def left(self) -> Tensor:
        return self.point.left.transpose(0, 1)

    @property
    def start(self) -> At:
        return super().start._replace(value=self.lefts / 2)

    def residual(self, saved: list[Saved], at: At, order: str, r: Tensor | None = None) -> Residual:
        return super().residual(saved, at, order)._replace(moved=self.scale * self.scale * self.moved)


@fusible
def _misfit(u: Tensor, Wq: Tensor, factor: Number, real: Tensor | None) -> tuple[Tensor, Number]:
    rest = along(u[1:], factor, Wq)
    rest = rest if real is None else rest * real
    return rest, inner(u[:1], u[:1]) + inner(rest, rest)


@fusible
def _change(h: Tensor, u: Tensor, e: Number) -> Tensor:
    """tanh(c - e u) - tanh(c) = (1 - h^2) v / (1 + h v) with v = tanh(-e u), without cancellation, from h = tanh(c)."""
    v = (u * -e).tanh_()
    one = h.new_full((), 1 + torch.finfo(h.dtype).eps)  # where |h| and |v| are 1 there is no change
    return _times_slope(v, h).div_(torch.addcmul(one, h, v))


def _times_slope(v: Tensor, h: Tensor) -> Tensor:
    """(1 - h^2) v in one pass over memory."""
    return torch.ops.aten.tanh_backward(v, h)
