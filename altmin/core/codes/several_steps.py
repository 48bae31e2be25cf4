"""Several steps on one code at a time, from the last code to the first, of the best length or of a fixed one.

The letters are those of `codes/gradient.py`. A code moves to c - m v and lowers, from v = 0,

    above(v) + kappa / 2 |v|^2 + l1 |c - m v|_1 / m,

by steps v + a w with w = g + momentum * w, where g is the gradient at the code that has moved so far; a is a fixed
number, or the best length along w. After that the target of its own block is a move along v, scaled to the length of
its first gradient.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from altmin.calculus import Params
from altmin.calculus.base import shifted
from altmin.calculus.context import Context
from altmin.calculus.numbers import TINY, safe_div, select
from altmin.core.chain import Block, State
from altmin.core.codes.links import (
    Above,
    LocalProblem,
    Moves,
    OutputLoss,
    Segment,
    Upstream,
    hidden_problem,
    joined,
    unmoved,
)


class Options(Protocol):
    """The options of `GradientCodes`."""

    steps: int
    lr: Any
    momentum: Any
    tolerance: float
    l1: float
    share: Any
    order: str


class LocalModel(NamedTuple):
    """What lies above a code, for one move of the block's output: the position, the value there, its gradient, and the
    product with its Hessian. Below another code the position is the rest of that code's offset, and the value is half
    its square."""

    position: Tensor
    value: Tensor
    delta: Tensor
    hessian: Callable[[Tensor], Tensor]


class Moved(NamedTuple):
    """A code after some steps: its move v (None: none yet), the block's state there, what lies above, and the
    objective."""

    v: Tensor | None
    state: State
    model: LocalModel
    value: Tensor


class SeveralSteps:
    """Steps on one code after the other, with the options of a `GradientCodes`."""

    def __init__(self, options: Options):
        self.options = options

    def __call__(self, segment: Segment, above: Above) -> Moves:
        parts = []
        for i in reversed(range(len(segment.blocks))):
            block = segment.part(i, i + 1)
            parts.append(unmoved(block, above) if block.begins else self.one(block, above))
            above = parts[-1].below or above
        return joined(parts)

    def one(self, segment: Segment, above: Above) -> Moves:
        """Moves the code below a single block."""
        (block,), (p,), (code,), (state,), context, *_ = segment
        options, start = self.options, model_at(above, None, context)
        l1 = options.l1 / context.samples(code) if options.l1 else 0.0
        here, first, w = Moved(None, state, start, start.value), None, None
        for _ in range(options.steps):
            g = block.vjp(p, here.state, here.model.delta)
            g = g if here.v is None else g - price(above) * here.v
            first = g if first is None else first
            w = g if w is None else g + options.momentum * w
            a = self._length(block, p, here, g, w, above, context)
            v = a * w if here.v is None else here.v + a * w
            v = shrunk(code, v, above.scale, a * l1) if options.l1 else v
            new = self._at(segment, above, v, l1)
            fell = here.value - new.value
            ok = ~(new.value > here.value + slack(above, here.value)) | (not isinstance(options.lr, str))
            ok = ok | block.estimated
            if context.eager:
                if not bool(ok):
                    break
                here = new
            else:
                v, state, position, value = select(
                    ok,
                    (v, new.state, new.model.position, new.value),
                    (torch.zeros_like(v) if here.v is None else here.v, here.state, here.model.position, here.value),
                )
                here = Moved(v, state, model_at(above, position, context), value)
            if options.tolerance and bool(fell <= options.tolerance * (here.value + fell).abs()):
                break
        assert first is not None
        first = first + l1 * code.sign() if options.l1 else first
        return moves(here.state, here.model, above, _wanted(above, here.v, first, context), options.order, context)

    def _length(
        self, block: Block, p: Params, here: Moved, g: Tensor, w: Tensor, above: Above, context: Context
    ) -> Tensor:
        """The step along w: fixed, or the best of the quadratic model, with its bounded share."""
        options = self.options
        if not isinstance(options.lr, str):
            factor = above.samples if isinstance(above, OutputLoss) else 1  # deltas are of the mean loss, f has the sum
            return g.new_zeros(()) + options.lr * factor
        Jw = block.jvp(p, here.state, w)
        HJw = here.model.hessian(Jw)
        bounded = above.curved(Jw, HJw, options.share) if isinstance(above, OutputLoss) else HJw
        pairs = [(g, w), (w, w), (bounded, bounded), (Jw, HJw), (above.delta, above.delta)]
        gw, ww, hh, curvature, dd = context.inners(pairs)
        best = safe_div(gw.clamp_min(0), curvature + price(above) * ww)
        return torch.minimum(best, options.share * safe_div(dd, hh).sqrt())

    def _at(self, segment: Segment, above: Above, v: Tensor, l1: Any) -> Moved:
        """The code below a single block, moved by v."""
        (block,), (p,), (code,), (state,), context, *_ = segment
        start = model_at(above, None, context)
        if block.estimated:  # a discrete activation stays as it is
            model, moved = start, state
        else:
            Q, moved = block.quotient(p, state, v, above.scale, None)
            model = model_at(above, start.position - Q, context)
        (vv,) = context.inners([(v, v)])
        value = model.value + price(above) / 2 * vv
        return Moved(v, moved, model, value + l1 * growth(code, v, above.scale, context) if self.options.l1 else value)


def moves(state: State, model: LocalModel, above: Above, below: Upstream, order: str, context: Context) -> Moves:
    """A block whose input has moved, with its state and what lies above there. below: the target of the code below."""
    read = context.numbers.read
    if isinstance(above, OutputLoss):
        at = above.at(model.position)
        problem: LocalProblem = above.problem(state.core, at, model.position, context)
        value = at.value.view(1)
        return Moves([problem], read(value), read(torch.zeros_like(value)), below)
    delta = model.delta if order == "codes-first" else above.delta
    problem = hidden_problem(state.core, delta, above.delta, above.scale, context)
    squares = above.scale * above.scale * torch.stack([2 * model.value, above.offset_square])
    return Moves([problem], read(squares[:1]), read(squares[1:]), below)


def model_at(above: Above, position: Tensor | None, context: Context) -> LocalModel:
    """What lies above, at a position; None: at the encoded one."""
    if isinstance(above, OutputLoss):
        at = above.start if position is None else above.at(position)
        return LocalModel(above.output if position is None else position, *at)
    r = above.offset if position is None else position
    square = above.offset_square if position is None else context.inners([(r, r)])[0]
    return LocalModel(r, square / 2, r + (above.delta - above.offset), lambda q: q)


def price(above: Above) -> Any:
    """kappa, of a move of the code below."""
    return above.price if isinstance(above, OutputLoss) else 1.0


def slack(above: Above, value: Tensor) -> Tensor:
    """By how much two objectives may differ by rounding alone."""
    eps = torch.finfo(value.dtype).eps
    return eps * (above.loss.rounding if isinstance(above, OutputLoss) else 0.0) + 16 * eps * value.abs()


def _wanted(above: Above, v: Tensor | None, first: Tensor, context: Context) -> Upstream:
    """The target of a code that has moved by v: v, scaled to the length of its first gradient."""
    if v is None:
        zero = torch.zeros_like(above.scale)
        return Upstream(first, zero, zero, first, context.inners([(first, first)])[0])
    vv, square = context.inners([(v, v), (first, first)])
    a = safe_div(vv, square).sqrt()
    delta = torch.where((a > TINY).to(v.device), v / a.clamp_min(TINY), first)
    return Upstream(delta, above.scale * a, above.scale * a, delta, square)


def shrunk(code: Tensor, v: Tensor, m: Tensor, threshold: Any) -> Tensor:
    """v after the proximal step of threshold |c - m v|_1 / m: the code c - m v moves towards zero by m threshold."""
    moved = shifted(code, v, m)
    stays = moved.abs() > m * threshold
    return torch.where(stays, v + threshold * moved.sign(), code / m.clamp_min(TINY))


def growth(code: Tensor, v: Tensor, m: Tensor, context: Context) -> Tensor:
    """(|c - m v|_1 - |c|_1) / m without cancellation."""
    moved = shifted(code, v, m)
    crosses = moved * code <= 0
    more = torch.where(crosses, (moved.abs() - code.abs()) / m.clamp_min(TINY), -v * code.sign())
    return context.sum(context.weighted(more).sum())[0]
