"""Encoding, and the code update (Algorithm 2): from the top down, one line search for each code.

Write F for a block, J for its Jacobian at the encoded code c below it, and delta for the gradient that reaches its
output. At the top delta is the gradient of the mean loss. All sums are over the whole mini-batch. The code below moves
to c - m a g along

    g = J^T delta,

where m is the product of the lengths a of the codes above. What it hands down as the next delta is g itself, in the
loss's own scale: deltas neither shrink nor grow by the lengths, however deep the network. The length lowers f most
along g, were F linear: with the Hessian H of what lies above (I below another code) and the price kappa of a move
(1 below another code, 2 mu / n below the loss of n samples)

    a = |g|^2 / (<Jg, H Jg> + kappa |g|^2),        a |H Jg| <= share |delta|.

The bounded share keeps what is left for the block's own weights,

    r = delta - a Q,        Q = (F(c) - F(c - m a g)) / (m a),

close to delta; below the loss r is the loss's gradient at the moved output. The gradient of the block's parameters is
that of <r, F> at the moved code: as share goes to 0, backprop's. A step that would raise f is not taken.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from altmin.calculus import Number, Params
from altmin.calculus.numbers import TINY, along, at_least, eager, inner, inners, over, root, select, size
from altmin.calculus.ranks import shared
from altmin.calculus.sample_weight import samples
from altmin.common.errors import demand
from altmin.core.chain import Block, Chain, State, Theta
from altmin.core.codes.above import Above, Ask, At, Residual, Top, perceptible
from altmin.core.codes.linesearch import best_length, growth, judged, shrunk
from altmin.core.codes.phases import Pull, in_phases
from altmin.core.codes.straight import straight_step

ORDERS = ("codes-first", "weights-first")
LONGEST = 1e15
"""A fixed step beyond this has no meaning, and its products are not finite."""


class Trace(NamedTuple):
    """A forward pass: what each block gave (the codes and, last, the output) and what its modules remember."""

    values: list[Tensor]
    states: list[State]


def encode(chain: Chain, theta: Theta, x: Tensor, blocks: Sequence[int] | None = None) -> Trace:
    """The forward pass: every code gets its linear value. ValueError if a block cannot take its input. blocks: of these
    alone, of which x is the first one's input; None for all."""
    values, states = [x], []
    for l in range(len(chain)) if blocks is None else blocks:
        block, p = chain.blocks[l], theta[l]
        try:
            value, state = block.forward(p, values[-1])
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, IndexError, NotImplementedError) as error:
            words = str(error).partition("\n")[0]
            raise ValueError(
                f"block {l} ({block}) cannot take its input: {block.misfit(values[-1])} ({words})"
            ) from None
        values.append(value)
        states.append(state)
    return Trace(values[1:], states)


class CodeStep(Protocol):
    """How one code moves."""

    order: str

    def move(self, chain: Chain, theta: Theta, trace: Trace, l: int, above: Above) -> tuple[Residual, Ask]:
        """Moves the code below block l, the last that the trace still holds: what the block is left with, and what the
        code asks of its own block."""


def top_down(solver: CodeStep, chain: Chain, theta: Theta, trace: Trace, top: Top) -> Iterator[tuple[int, Residual]]:
    """Every code in turn, from the last to the first; yields each block's number and residual once it is known.

    The trace is used up on the way, so that memory is released as soon as it has served.
    """
    above: Above = top
    trace.values.pop()
    for l in reversed(range(len(chain))):
        residual, asked = move_below(solver, chain, theta, trace, l, above)
        above = asked or above
        yield l, residual
        del residual


def move_below(
    solver: CodeStep, chain: Chain, theta: Theta, trace: Trace, l: int, above: Above
) -> tuple[Residual, Ask | None]:
    """What block l is left with once the code below it has moved, and what that code asks of its own block; below the
    first block lies the input, which asks for nothing. Takes what it needs off the end of the trace."""
    if l == 0:
        return above.residual(trace.states.pop().core, above.start, solver.order), None
    return solver.move(chain, theta, trace, l, above)


class GradientCodes:
    """Gradient steps on each code, one length for the whole mini-batch.

    steps: how many, at most. lr: "exact" for the best step along the gradient, or a number for the paper's fixed step.
    momentum: of the steps on one code. tolerance: stop a code's steps once they lower its objective by less than this
    fraction. l1: weight of |c|_1, a term of the loss for each code, by a proximal step. share: how much of what is
    asked of a block an exact step may take away from its weights, from 0, where codes do not move and gradients are
    backprop's, to 1, the full step. order: "codes-first" fits hidden weights to what is left once the codes below have
    moved (r = delta - a Q), "weights-first" to all that is asked of them (r = delta).

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

    def __call__(self, chain: Chain, theta: Theta, trace: Trace, top: Top) -> Iterator[tuple[int, Residual]]:
        """Moves the codes from the last to the first; yields every block's number and residual on the way."""
        if shared() is not None and type(self) is GradientCodes and self.one_exact_step:
            return in_phases(self, chain, theta, trace, top)
        return top_down(self, chain, theta, trace, top)

    def move(self, chain: Chain, theta: Theta, trace: Trace, l: int, above: Above) -> tuple[Residual, Ask]:
        block, p, state, code = chain.blocks[l], theta[l], trace.states.pop(), trace.values.pop()
        if isinstance(above, Ask) and block.straight and self.one_exact_step:
            return straight_step(block, p, state, above, self.share, self.order)
        return self.descend(block, p, state, code, above)

    def why_not_captured(self) -> str:
        """Why the steps cannot be captured as a CUDA graph; empty if they can."""
        return "with a tolerance the processor decides when a code's steps end" if self.tolerance else ""

    @property
    def one_exact_step(self) -> bool:
        return self.lr == "exact" and self.one_step

    @property
    def one_step(self) -> bool:
        """Whether a code's move is a multiple of its gradient."""
        return self.steps == 1 and not self.l1

    def descend(
        self, block: Block, p: Params, state: State, code: Tensor, above: Above, pull: Pull | None = None
    ) -> tuple[Residual, Ask]:
        """Lowers above + kappa/2 |v|^2 over the move v of one code to c - m v, from v = 0, for any block and options.

        m is the scale of what lies above. With l1 the term l1 |c - m v|_1 / m is added. pull: what is known already of
        the first step.
        """
        m, kappa, l1 = above.scale, above.price, self.l1 / samples(code) if self.l1 else None
        weights_first = isinstance(above, Ask) and self.one_exact_step and self.order == "weights-first"
        if weights_first and not isinstance(m, Tensor) and m == 0:
            # the code above has not moved, so this one does not, and r = delta at the encoded code
            residual = above.residual(state.core, above.start, self.order)
            if pull is not None:
                return residual, Ask(pull.g, pull.products[0], 0.0, 0.0)
            g, grads = block.vjp_and_grads(p, state, above.delta)
            return residual._replace(grads=grads), Ask(g, inner(g, g), 0.0, 0.0)
        at, here, position, value = above.start, state, above.position, above.start.value
        first = v = w = code_square = None
        tried = None if pull is None else pull.tried
        for left in reversed(range(self.steps)):
            jvp_of_g: Callable[[], Tensor] | None = None
            if pull is not None:
                g = pull.g
            elif v is None:
                g, jvp_of_g = block.vjp_and_jvp(p, here, at.delta)
            else:
                g = along(block.vjp(p, here, at.delta), -kappa, v)
            first = g if first is None else first
            if weights_first:
                if pull is not None:
                    gg, code_square = pull.products[0], pull.code_square
                else:
                    gg, code_square = inners((g, g), (code, code)) if eager() else (inner(g, g), None)
                if not perceptible(code, gg, m, code_square):  # no length is above 1
                    return above.residual(here.core, at, self.order), Ask(g, gg, 0.0, 0.0)
            w = g if w is None or not _given(self.momentum) else g + self.momentum * w
            if self.lr == "exact":
                if pull is not None:
                    Jw, HJw, products, code_square = pull.Jg, pull.HJg, pull.products, pull.code_square
                else:
                    Jw = jvp_of_g() if jvp_of_g is not None and w is g else block.jvp(p, here, w)
                    HJw, products = at.hessian(Jw), None
                a, square = best_length(None if g is w else g, w, Jw, HJw, above.square, kappa, self.share, products)
            else:
                a, square, Jw = self.lr * above.unit, None, None
            if self.one_step:  # v = a w: its direction has its jvp already
                square = inner(w, w) if square is None else square
                new_v, vv = None, a * a * square
                if tried is None:
                    reached, moved = above.reach(block, p, state, code, a, w, square, Jw, code_square)
                else:
                    reached, moved = tried.r, tried.state
            else:
                new_v = a * w if v is None else along(v, a, w)
                new_v = new_v if l1 is None else shrunk(code, new_v, m, a * l1)
                vv = inner(new_v, new_v)
                reached, moved = above.reach(block, p, state, code, 1.0, new_v, vv, None)
            new_at = above.at(reached) if tried is None else tried.at
            more = 0.0 if l1 is None or new_v is None else l1 * growth(code, new_v, m)
            falls, new_value = judged(value, new_at.value, kappa, vv, more, *above.slack)
            ok = falls if Jw is not None and not block.estimated else True
            ok = bool(ok) if eager() and block.opaque else ok  # graphs of two points cannot be mixed
            settled = self.tolerance and bool(value - new_value <= self.tolerance * size(value))
            if isinstance(ok, Tensor):
                v = new_v if new_v is None else select(ok, new_v, torch.zeros_like(new_v) if v is None else v)
                new, old = (reached, moved, new_value, a, *new_at[:2]), (position, here, value, 0 * a, *at[:2])
                position, here, value, a, *start = select(ok, new, old)
                at = above.at(position) if left else At(start[0], start[1], new_at.hessian)
            elif ok:
                v, position, here, value, at = new_v, reached, moved, new_value, new_at
            else:
                a = 0 * a
            if left == 0 or ok is False or settled:
                break
        assert first is not None
        residual = above.residual(here.core, at, self.order, position)
        if self.one_step:
            assert square is not None
            return residual, Ask(first, square, m * a, m * a)
        return residual, self._ask(code, first, v, m, l1)

    def _ask(self, code: Tensor, first: Tensor, v: Tensor | None, m: Number, l1: Number | None) -> Ask:
        """What a code asks for after several steps: its move v, brought to the length of its first gradient."""
        first = first if l1 is None else first + l1 * code.sign()
        square = inner(first, first)
        if v is None:
            return Ask(first, square, 0.0 * m, 0.0 * m)
        a = root(over(inner(v, v), square))
        return Ask(select(a > TINY, v / at_least(a, TINY), first), square, m * a, m * a)


def _given(option: Any) -> bool:
    return isinstance(option, Tensor) or bool(option)
