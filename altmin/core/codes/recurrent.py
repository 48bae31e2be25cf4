"""Codes in time, of a recurrent layer: c_t = U x_t + W h_{t-1} + b at every step, and h is a function of all of them,
tanh(c_t) in an Elman network (`calculus.recurrent`).

Let F be the block above, J its Jacobian at h, and delta the gradient at its output, which is to move by -m delta. With
the codes at c - m v and q = (h(c) - h(c - m v)) / m the terms of f that contain them are, divided by mu m^2 / n and
were F linear,

    2 phi(v) = |delta - J q|^2 + sum_t |v_t - W q_{t-1}|^2,        q_0 = 0.

All steps of time move as one code, v = a g, with one length a for the mini-batch. The direction is that of backprop
through time, in the loss's own scale; with tanh, and e = J^T delta,

    g_t = s_t (e_t + W^T g_{t+1}),        s_t = 1 - h_t^2.

The length is the exact line search of phi, were h linear in the codes, with q the derivative of h along g; as for all
codes its share is bounded, and below the loss its Hessian H and the price kappa of a move are those of the loss:

    a = max(0, <o, J q>) / (<J q, H J q> + kappa sum_t |g_t - W q_{t-1}|^2),        a |H J q| <= share |delta|.

A step that would raise f is rejected. With Q = (h(c) - h(c - m a g)) / (m a) the residual of the weights above is
delta - (F(h) - F(h - m a Q)) / m and that of the recurrent layer's weights g_t - W Q_{t-1}, or, if weights go first,
delta and g_t; the latter are, for the exact sweep and as share goes to 0, the deltas of backprop through time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from altmin.calculus.context import Context
from altmin.calculus.numbers import safe_div, select
from altmin.calculus.recurrent import Recurrence
from altmin.core.chain import Chain, State
from altmin.core.codes.discrete import lacks_derivative
from altmin.core.codes.gradient import GradientCodes
from altmin.core.codes.links import (
    Above,
    LocalProblem,
    Moves,
    OutputLoss,
    Segment,
    Upstream,
    hidden_problem,
    joined,
)

SWEEPS = ("exact", "parallel")


class LocalModel(NamedTuple):
    """What lies above a code, for one move of the block's output: the position, the value there, its gradient, and the
    product with its Hessian. Below another code the position is the rest of that code's offset, and the value is half
    its square."""

    position: Tensor
    value: Tensor
    delta: Tensor
    hessian: Callable[[Tensor], Tensor]


class RecurrentCodes(GradientCodes):
    """One exact step of codes in time, along one of two sweeps; all other codes, and share and order, as in
    `GradientCodes`.

    sweep="exact": the direction g of backprop through time, from the last step to the first (`calculus.sweep`).

    sweep="parallel": of Elman layers, an approximation over all steps at once, without a loop over time: g_{t+1} is 0,
    which is backprop through time truncated to one step.
    """

    def __init__(self, sweep: str = "exact", share: float = 0.1, order: str = "weights-first"):
        super().__init__(share=share, order=order)
        if sweep not in SWEEPS:
            raise ValueError(f'the sweep over time is "exact" or "parallel", given {sweep!r}')
        self.sweep = sweep

    def __repr__(self) -> str:
        return f"RecurrentCodes({self.sweep!r}, share={self.share!r}, order={self.order!r})"

    def check(self, chain: Chain) -> None:
        """ValueError for codes in time that these sweeps do not move: below an activation without a derivative, and,
        for the parallel sweep, in gated layers."""
        for l, block in enumerate(chain):
            layer = block.core.maps[0]
            if not isinstance(layer, Recurrence):
                continue
            name = layer.module._get_name()
            above = chain.blocks[l + 1]
            if lacks_derivative(above) or above.estimated:
                raise ValueError(
                    f"an activation without a derivative follows {name}, whose codes in time no search moves; put a "
                    "Linear between them"
                )
            if self.sweep == "parallel" and not (isinstance(layer, Recurrence) and layer.mode == "RNN_TANH"):
                raise ValueError(f'sweep="parallel" is for Elman layers, given {name}; use sweep="exact"')

    def __call__(self, segment: Segment, above: Above) -> Moves:
        """As in `GradientCodes`; codes in time also change the input of their own block, h_{t-1}."""
        states = list(segment.states)
        in_time = [i for i in range(1, len(states)) if isinstance(segment.blocks[i - 1].core.maps[0], Recurrence)]
        parts, end = [], len(states)
        moved: Tensor | None = None
        while end:
            here = segment._replace(states=states)
            first, own = max([0, *(i + 1 for i in in_time if i < end)]), moved
            if first < end:
                part, moved = super().__call__(here.part(first, end), above), None
            else:
                first = end - 1
                part, states[first - 1], moved = self._in_time(here, first, above)
            if own is not None:  # |g|^2 of codes in time, not the square of their remaining offset
                numbers = segment.context.numbers
                part = part._replace(moved=numbers.column(numbers.join(part.moved[:-1], numbers.read(own.view(1)))))
            parts.append(part)
            above, end = part.below or above, first
        return joined(parts)

    def _in_time(self, segment: Segment, i: int, above: Above) -> tuple[Moves, State, Tensor]:
        """Moves the codes in time below block i: the remaining problem of block i, the moved state of the
        recurrent block below it, and the squared norm of that block's own move."""
        context, block, p, state = segment.context, segment.blocks[i], segment.theta[i], segment.states[i]
        layer, own, (steps,) = segment.blocks[i - 1].core.maps[0], segment.theta[i - 1], segment.states[i - 1].core
        assert isinstance(layer, Recurrence)
        start = model_at(above, None, context)
        activation = layer.activation(own, steps)
        g = activation.sweep(block.vjp(p, state, above.delta), self.sweep == "parallel")
        q = activation.jvp(g)
        rest = g - layer.feedback(own, steps, q)
        a, gg, square = self._length(g, block.jvp(p, state, q), rest, start, above, context)
        stay = Point(state, steps, start.position, rest, torch.zeros_like(a), square)
        Q = activation.quotient(g, above.scale * a)
        rest = g - layer.feedback(own, steps, Q)
        (square,) = context.inners([(rest, rest)])
        position, state = _above(segment, i, Q, a, above)
        new = Point(state, layer.moved(steps, Q, above.scale * a), position, rest, a, square)
        model = model_at(above, position, context)
        rises = model.value + price(above) / 2 * a * a * square > start.value + slack(above, start.value)
        if context.eager:
            end, model = (stay, start) if bool(rises) else (new, model)
        else:
            end = select(~rises, new, stay)
            model = model_at(above, end.position, context)
        scale, delta = above.scale * end.a, end.rest if self.order == "codes-first" else g
        below = Upstream(delta, scale, scale, end.rest, end.square)
        state = State(segment.states[i - 1].prelude, [end.steps])
        return moves(end.state, model, above, below, self.order, context), state, scale * scale * gg

    def _length(
        self, g: Tensor, Jq: Tensor, rest: Tensor, start: LocalModel, above: Above, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The best length along g, were F and h linear; |g|^2 and |rest|^2."""
        HJq = start.hessian(Jq)
        bounded = above.curved(Jq, HJq, self.share) if isinstance(above, OutputLoss) else HJq
        pairs = [(above.offset, Jq), (Jq, HJq), (bounded, bounded), (rest, rest), (above.delta, above.delta), (g, g)]
        gain, bend, hh, square, dd, gg = context.inners(pairs)
        best = safe_div(gain.clamp_min(0), bend + price(above) * square)
        return torch.minimum(best, self.share * safe_div(dd, hh).sqrt()), gg, square


class Point(NamedTuple):
    """Codes in time after a move by -m a g: the state of the block above, that of the recurrent layer, the position of
    what lies above (`LocalModel`), g_t - W Q_{t-1}, the length a, and the square of the former."""

    state: State
    steps: Any
    position: Tensor
    rest: Tensor
    a: Tensor
    square: Tensor


def _above(segment: Segment, i: int, Q: Tensor, a: Tensor, above: Above) -> tuple[Tensor, State]:
    """The position of what lies above once h, the input of block i, has moved by -m a Q, and the block's state."""
    block, p, state, e = segment.blocks[i], segment.theta[i], segment.states[i], above.scale * a
    if isinstance(above, OutputLoss):
        code = segment.inputs[i] - e * Q
        return block.replay(p, state, code) if block.replays else block.forward(p, code, segment.context)
    change, state = block.quotient(p, state, Q, e, None)
    return above.offset - a * change, state


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
