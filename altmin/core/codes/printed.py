"""Algorithm 2 as the paper prints it: codes as values, moved one after the other by steps of a fixed length.

With the weights W fixed, the codes of a mini-batch lower f = sum_t loss_t + mu sum_t sum_l |c_l - F_l(c_{l-1})|^2. Code
c_l starts at its encoded value e_l and lowers the two terms that it is part of, those above with their codes where they
have moved to (the paper's problems 4 and 5; F is a block, t runs over samples):

    last code    sum_t loss_t(F(c))           + mu |c - e|^2
    others       mu |c_{l+1} - F(c)|^2        + mu |c - e|^2

Codes in time (appendix B.1) do so from the last step to the first; c_t is in the terms of z_t, of c_{t+1}, and its own.

Where the text is silent, as the authors' public code does: five steps of gradient descent with Nesterov momentum 0.9.
That code minimises other functions, which are options here: with mean=True

    last code    mean_t loss_t(F(c)) / mu     + mean (c - e)^2
    others       mean (c_{l+1} - F(c))^2      + mean (c - e)^2

with means over samples and units; and the e of its penalty moves along with c in the gradient, so that the penalty has
none: anchored=False. A block's own problem for its weights has the factor of its term: mu / n, or one over the entries.
"""

from typing import Any

import torch
from torch import Tensor

from altmin.calculus import Linear, Params, Recurrence, Steps
from altmin.calculus.context import Context
from altmin.calculus.products import matmul
from altmin.common.errors import demand
from altmin.core.chain import Block, Chain, State
from altmin.core.codes.discrete import stand_in
from altmin.core.codes.links import Above, Moves, OutputLoss, Segment, Upstream, hidden_problem, joined, unmoved
from altmin.core.step import soft_threshold
from altmin.layers import Recurrent


class PrintedCodes:
    """The paper's updateCodes.

    steps, lr, momentum: of the gradient steps on every code. l1: weight of |c|_1, by a proximal step. mean, anchored:
    as the authors' public code has them, see above. A discrete activation has the derivative of a straight-through
    estimate, as in that code. ValueError for a loss that is a sum over the batch.
    """

    def __init__(
        self,
        steps: int = 5,
        lr: float = 0.1,
        momentum: float = 0.9,
        l1: float = 0.0,
        mean: bool = False,
        anchored: bool = True,
    ):
        demand("PrintedCodes", "steps", steps, low=1, whole=True)
        demand("PrintedCodes", "lr", lr, above=True)
        demand("PrintedCodes", "momentum", momentum)
        demand("PrintedCodes", "l1", l1)
        self.steps, self.lr, self.momentum, self.l1, self.mean, self.anchored = steps, lr, momentum, l1, mean, anchored

    def __repr__(self) -> str:
        return f"PrintedCodes({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def check(self, chain: Chain) -> None:
        """ValueError for codes in time that these steps do not move."""
        layers = [l for l, block in enumerate(chain) if isinstance(block.core.maps[0], Recurrence)]
        ours = all(isinstance(chain.blocks[l].core.maps[0].module, Recurrent) for l in layers)
        if self.mean and layers:
            raise ValueError("mean=True belongs to the authors' public code, which has no recurrent nets; leave it out")
        if any(layers) or not ours or (layers and not _reads_every_step(chain)):
            raise ValueError(
                "PrintedCodes moves the codes in time of one altmin.Recurrent, the first layer, followed by an "
                "altmin.Readout and more layers, as in the paper; use altmin.RecurrentCodes for other nets"
            )

    def why_not_captured(self) -> str:
        return ""

    def __call__(self, segment: Segment, above: Above) -> Moves:
        """Moves the codes below the blocks of a segment, from the last to the first."""
        parts, states = [], list(segment.states)
        for i in reversed(range(len(states))):
            part = segment._replace(states=states).part(i, i + 1)
            if part.begins:
                parts.append(unmoved(part, above))
            elif i and isinstance(segment.blocks[i - 1].core.maps[0], Recurrence):
                moves, states[i - 1] = self._in_time(part, segment.theta[i - 1], states[i - 1].core[0], above)
                parts.append(moves)
            else:
                parts.append(self._one(part, above))
            above = parts[-1].below or above
        return joined(parts)

    def _one(self, segment: Segment, above: Above) -> Moves:
        """Moves the code below a single block."""
        (block,), (p,), (start,), (state,), context, *_ = segment
        block, term = stand_in(block), Term(above, start, self.mean, context)
        if not isinstance(above, OutputLoss):
            term.target = _forward(block, p, state, start, context)[0] - above.scale * above.offset
        anchor, code, momentum = 1 / term.scale if self.anchored else 0.0, start, None
        output, state = _forward(block, p, state, code, context)
        for _ in range(self.steps):
            g = term.factor * (block.vjp(p, state, term.delta(output)) + anchor * (code - start))
            momentum = g if momentum is None else self.momentum * momentum + g
            code = code - self.lr * (g + self.momentum * momentum)
            code = soft_threshold(code, self.lr * self.l1 * term.l1) if self.l1 else code
            output, state = _forward(block, p, state, code, context)
        delta = (start - code) / term.scale
        (square,) = context.inners([(delta, delta)])
        below = Upstream(delta, term.scale, term.scale, delta, square)
        return self._moves(state, output, term, above, below, context)

    def _moves(
        self, state: State, output: Tensor, term: "Term", above: Above, below: Upstream, context: Context
    ) -> Moves:
        """A block at the moved code below it, and the remaining problem of its weights."""
        read = context.numbers.read
        if isinstance(above, OutputLoss):
            at = above.at(output)
            problem = above.problem(state.core, at, output, context)
            return Moves([problem], read(at.value.view(1)), read(torch.zeros_like(at.value).view(1)), below)
        delta = term.delta(output)
        (square,) = context.inners([(delta, delta)])
        squares = above.scale * above.scale * torch.stack([square, above.offset_square])
        problem = hidden_problem(state.core, delta, above.delta, above.scale, context)
        return Moves([problem], read(squares[:1]), read(squares[1:]), below)

    def _in_time(self, segment: Segment, recurrent: Params, steps: Steps, above: Above) -> tuple[Moves, State]:
        """Moves the codes in time below a block that sees each step by itself, from the last step to the first. Returns
        also the moved state of the recurrent block. Tensors are (steps, samples, features)."""
        (block,), (p,), (inputs,), (state,), context, *_ = segment
        assert isinstance(above, Upstream)
        term, (V, *_), (U, W, b) = Term(above, inputs, False, context), p, recurrent
        encoded = matmul(steps.x, U.mT) + b
        encoded = torch.cat([encoded[:1], encoded[1:] + matmul(steps.h[:-1], W.mT)])
        term.target = block.forward(p, inputs, context)[0] - above.scale * above.offset
        targets = (term.target - p[1] if len(p) > 1 else term.target).transpose(0, 1)
        rate, moved = term.factor / term.scale, list(encoded.unbind(0))

        def real(value: Tensor, t: int) -> Tensor:
            return value if steps.real is None else value * steps.real[t]

        for t in reversed(range(len(moved))):
            code, momentum = moved[t], None
            for _ in range(self.steps):
                h = code.tanh()
                pulled = matmul(matmul(h, V.mT) - targets[t], V)
                if t + 1 < len(moved):
                    ahead = encoded[t + 1] + matmul(h - steps.h[t], W.mT) - moved[t + 1]
                    pulled = pulled + matmul(real(ahead, t + 1), W)
                g = (1 - h * h) * pulled + (code - encoded[t] if self.anchored else 0.0)
                g = rate * real(g, t)
                momentum = g if momentum is None else self.momentum * momentum + g
                code = code - self.lr * (g + self.momentum * momentum)
            moved[t] = code
        codes = torch.stack(moved)
        h = codes.tanh() if steps.real is None else codes.tanh() * steps.real
        own = torch.cat([encoded[:1], encoded[1:] + matmul(h[:-1] - steps.h[:-1], W.mT)])
        left = (own - codes if steps.real is None else (own - codes) * steps.real) / term.scale
        left = left.transpose(0, 1)
        (square,) = context.inners([(left, left)])
        output, state = block.forward(p, h.transpose(0, 1), context)
        below = Upstream(left, term.scale, term.scale, left, square)
        return self._moves(state, output, term, above, below, context), State([], [steps._replace(h=h)])


def _reads_every_step(chain: Chain) -> bool:
    """Whether the second block is a linear map of every step, and not the last one."""
    return len(chain) > 2 and not chain.blocks[1].prelude.maps and isinstance(chain.blocks[1].core.maps[0], Linear)


class Term:
    """The term of f above a code. scale: of the code's own term, which is |c - F|^2 / (2 scale); factor: by what both
    are multiplied in the function that the code lowers; l1: the weight of |c|_1 there. target: the code above, where
    it has moved to."""

    target: Tensor

    def __init__(self, above: Above, code: Tensor, mean: bool, context: Context):
        if isinstance(above, OutputLoss) and above.loss.adds:
            raise ValueError(
                'PrintedCodes takes a loss that is a mean over the batch; give reduction="mean" (nothing was changed)'
            )
        self.above, n, loss = above, context.samples(code), isinstance(above, OutputLoss)
        price = above.price if isinstance(above, OutputLoss) else 1 / above.scale
        units = code[:1].numel() * n
        self.scale = torch.zeros_like(above.scale) + (units / 2 if mean else 1 / price)
        self.factor: Any = 1 if mean else n
        self.weight: Any = 2 / (price * n) if mean and loss else 1  # 1 / mu
        self.l1: Any = 1 / units if mean else 1

    def delta(self, output: Tensor) -> Tensor:
        """The gradient of the term, per `factor`, at the block's output."""
        if isinstance(self.above, OutputLoss):
            return self.weight * self.above.at(output).delta
        return (output - self.target) / self.above.scale


def _forward(block: Block, p: Params, state: State, code: Tensor, context: Context) -> tuple[Tensor, State]:
    return block.replay(p, state, code) if block.replays else block.forward(p, code, context)
