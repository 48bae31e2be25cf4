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

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from altmin.calculus import Linear, Params, Recurrence, Steps
from altmin.calculus.context import Context
from altmin.calculus.products import matmul
from altmin.common.errors import demand
from altmin.core.chain import Chain, State
from altmin.core.codes.discrete import stand_in
from altmin.core.codes.problem import Encoded, Moved, Target, at_output, at_residual, joined, unmoved
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
        """Raise ValueError for codes in time that these steps do not move."""
        layers = [l for l, block in enumerate(chain) if isinstance(block.core.maps[0], Recurrence)]
        plain = all(isinstance(chain.blocks[l].core.maps[0].module, Recurrent) for l in layers)
        if self.mean and layers:
            raise ValueError("mean=True belongs to the authors' public code, which has no recurrent nets; leave it out")
        if any(layers) or not plain or (layers and not _reads_every_step(chain)):
            raise ValueError(
                "PrintedCodes moves the codes in time of one altmin.Recurrent, the first layer, followed by an "
                "altmin.Readout and more layers, as in the paper; use altmin.RecurrentCodes for other nets"
            )

    def why_not_captured(self) -> str:
        return ""

    def __call__(self, encoded: Sequence[Encoded], target: Target, context: Context) -> Moved:
        """Move the codes below blocks that follow each other, from the last to the first."""
        parts, blocks = [], list(encoded)
        for i in reversed(range(len(blocks))):
            above, below = blocks[i], blocks[i - 1] if i else None
            if not above.is_code:
                parts.append(unmoved(above, target, context))
            elif below is not None and isinstance(below.block.core.maps[0], Recurrence):
                moved, steps = self._in_time(above, below.p, below.saved.core[0], target, context)
                parts.append(moved)
                blocks[i - 1] = below._replace(saved=State([], [steps]))
            else:
                parts.append(self._one(above, target, context))
            target = parts[-1].below or target
        return joined(parts)

    def _one(self, encoded: Encoded, target: Target, context: Context) -> Moved:
        """Move the code below a single block."""
        encoded, start = encoded._replace(block=stand_in(encoded.block)), encoded.input
        output, state = encoded.block.replay(encoded.p, encoded.saved, start)
        term = Term(target, start, output, self.mean, context)
        anchor, code, momentum = 1 / term.scale if self.anchored else 0.0, start, None
        for _ in range(self.steps):
            g = encoded.block.vjp(encoded.p, state, term.delta(output))
            g = term.factor * (g + anchor * (code - start))
            momentum = g if momentum is None else self.momentum * momentum + g
            code = code - self.lr * (g + self.momentum * momentum)
            code = soft_threshold(code, self.lr * self.l1 * term.l1) if self.l1 else code
            output, state = encoded.block.replay(encoded.p, encoded.saved, code)
        below = Target((start - code) / term.scale, term.scale)
        return _moved(encoded._replace(saved=state), output, term, below, context)

    def _in_time(
        self, above: Encoded, recurrent: Params, steps: Steps, target: Target, context: Context
    ) -> tuple[Moved, Steps]:
        """Move the codes in time below a block that sees each step by itself, from the last step to the first. Return
        also what the recurrent layer then has saved. Tensors are (steps, samples, features)."""
        (V, *bias), (U, W, b) = above.p, recurrent
        term = Term(target, above.input, above.block.replay(above.p, above.saved, above.input)[0], False, context)
        encoded = matmul(steps.x, U.mT) + b
        encoded = torch.cat([encoded[:1], encoded[1:] + matmul(steps.h[:-1], W.mT)])
        targets = (term.target - bias[0] if bias else term.target).transpose(0, 1)
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
        values = torch.cat([encoded[:1], encoded[1:] + matmul(h[:-1] - steps.h[:-1], W.mT)])
        residual = (values - codes if steps.real is None else (values - codes) * steps.real) / term.scale
        output, state = above.block.replay(above.p, above.saved, h.transpose(0, 1))
        below = Target(residual.transpose(0, 1), term.scale)
        return _moved(above._replace(saved=state), output, term, below, context), steps._replace(h=h)


def _reads_every_step(chain: Chain) -> bool:
    """Return whether the second block is a linear map of every step, and not the last one."""
    return len(chain) > 2 and not chain.blocks[1].prelude.maps and isinstance(chain.blocks[1].core.maps[0], Linear)


class Term:
    """The term of f above a code. scale: of the code's own term, which is |c - F|^2 / (2 scale); factor: by what both
    are multiplied in the function that the code lowers; l1: the weight of |c|_1 there. target: where the code above, if
    there is one, has moved to, given the block's encoded output."""

    def __init__(self, above: Target, code: Tensor, output: Tensor, mean: bool, context: Context):
        top = above.loss
        if top is not None and top.loss.adds:
            raise ValueError(
                'PrintedCodes takes a loss that is a mean over the batch; give reduction="mean" (nothing was changed)'
            )
        self.above, n = above, context.samples(code)
        self.target = output - above.scale * above.delta
        price = 1 / above.scale if top is None else top.price
        units = code[:1].numel() * n
        self.scale = units / 2 if mean else 1 / price
        self.factor: Any = 1 if mean else n
        self.weight: Any = 2 / (price * n) if mean and top is not None else 1  # 1 / mu
        self.l1: Any = 1 / units if mean else 1

    def delta(self, output: Tensor) -> Tensor:
        """Return the gradient of the term, per `factor`, at the block's output."""
        if self.above.loss is not None:
            return self.weight * self.above.loss.at(output).delta
        return (output - self.target) / self.above.scale


def _moved(encoded: Encoded, output: Tensor, term: Term, below: Target, context: Context) -> Moved:
    """Return a block at the moved code below it."""
    if term.above.loss is not None:
        return at_output(encoded, term.above, output, context)._replace(below=below)
    return at_residual(encoded, term.above, context, term.delta(output))._replace(below=below)
