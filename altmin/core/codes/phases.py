"""One exact step of every code with few sums over samples, for a mini-batch that is spread over ranks.

The letters are those of `codes/gradient.py`. There each length is found by itself, from the last code to the first, and
each of its sums would be a message between ranks. But what is handed down, g = J^T delta, depends on no length, so

    1.  g and J g of all blocks come first, and their squares are summed at once (of a straight block g alone);
    2.  a code below a smooth block moves by the best length of the quadratic model, as if no step were refused; the
        objectives of consecutive codes are then summed at once. From the first one that has risen on, the codes do
        not move, and what is left of their blocks is computed once more;
    3.  codes below consecutive straight blocks have their lengths from sums that are taken at once too (`straight`).

The numbers are those of one code after another. Messages of a step, whatever the number of blocks:

    the loss, with the numbers of terms and samples        1    3 numbers
    all squares, |delta|^2 of the loss among them          1    4, 1 for each straight and 3 for each other hidden block
    the loss once the last code has moved                  1    1
    each run of consecutive straight hidden blocks         1    3 for each block
    each run of other consecutive hidden blocks            1    1 for each block; after a refused step 1 message more
    the gradients, and whether all is finite               1    the parameters + 1, in messages of `ranks.BUCKET` bytes

A hidden block is one with a code below and a code above, so neither the first nor the last. A ReLU net of any depth has
5 messages, and so has a tanh net. Batch norm adds its own, and a module that goes through autograd one of 2 numbers for
its quotient, where its code moves. The price is memory: g, J g and moved inputs of all blocks of a run are held at
once.

With weights-first a smooth block whose code does not move needs no J g, and its gradient comes with g. Where there are
such blocks, `TOGETHER` blocks at a time are taken so, with a message for their squares; below a code that has not moved
that is their only one.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from altmin.calculus import Number, Params
from altmin.calculus.numbers import inners
from altmin.core.chain import Block, Chain, State, Theta
from altmin.core.codes.above import Above, Ask, At, Residual, Top
from altmin.core.codes.linesearch import best_length, length_pairs
from altmin.core.codes.straight import Straight, pulled, straight_steps

TOGETHER = 4
"""Blocks whose squares are summed at once where it is not known whether J g is needed."""


def messages(chain: Chain) -> list[int]:
    """How many numbers each message of a code update has in which no step is refused: with codes-first, or where all
    hidden blocks are straight. Those of batch norm, of modules that go through autograd and of the gradients come
    besides; of a loss that adds up its samples, the first message has 1 number.

    >>> from torch import nn
    >>> from altmin.core.chain import split
    >>> layers = [m for _ in range(8) for m in (nn.Linear(3, 3), nn.ReLU())]
    >>> messages(split(nn.Sequential(*layers, nn.Linear(3, 2))))
    [3, 11, 1, 21]
    """
    if len(chain) == 1:
        return [3]
    hidden = [block.straight for block in reversed(chain.blocks[1:-1])]
    runs = [len(list(run)) * (3 if straight else 1) for straight, run in itertools.groupby(hidden)]
    return [3, 4 + sum(1 if straight else 3 for straight in hidden), 1, *runs]


class Tried(NamedTuple):
    """A step below a code with this scale: what it would leave of the offset, the block's state there, and what lies
    above."""

    scale: Number
    r: Tensor
    state: State
    at: At


class Pull(NamedTuple):
    """What is known of a block's first step before its length: g = J^T delta, J g and H J g.

    products: of `length_pairs`. code_square: |c|^2 of the code below, None where it is not needed. tried: the
    step, if it was."""

    block: Block
    p: Params
    state: State
    code: Tensor
    g: Tensor
    Jg: Tensor
    HJg: Tensor
    products: Sequence[Number] = ()
    code_square: Number | None = None
    tried: Tried | None = None

    @property
    def below(self) -> Tensor:
        return self.g


class ExactStep(Protocol):
    """A code solver that takes one exact step along the gradient."""

    share: float
    order: str

    def descend(
        self, block: Block, p: Params, state: State, code: Tensor, above: Above, pull: Pull | None = None
    ) -> tuple[Residual, Ask]: ...


def in_phases(solver: ExactStep, chain: Chain, theta: Theta, trace: Any, top: Top) -> Iterator[tuple[int, Residual]]:
    """Every code from the last to the first, as `gradient.top_down` moves them; yields every block's number and
    residual. The trace is used up."""
    above: Above = top
    trace.values.pop()
    weights_first = solver.order == "weights-first"
    straight = all(block.straight for block in chain.blocks[1:-1])
    together = TOGETHER if weights_first and not straight else len(chain)
    numbers = list(range(len(chain) - 1, 0, -1))
    while numbers:
        group, numbers = numbers[:together], numbers[together:]
        if weights_first and isinstance(above, Ask) and above.scale == 0:
            moves = at_rest(chain, theta, trace, group, above, solver.order)
        else:
            moves = moved(solver, pull_all(chain, theta, trace, group, above), above)
        for l in group:
            residual, above = next(moves)
            yield l, residual
            del residual
    yield 0, above.residual(trace.states.pop().core, above.start, solver.order)


def moved(solver: ExactStep, pulls: list[Any], above: Above) -> Iterator[tuple[Residual, Ask]]:
    """Moves the codes below blocks of which all is known but the lengths: as `CodeStep.move` for each. The list is used
    up."""
    while pulls:
        straight = _is_straight(pulls[0])
        run = list(next(itertools.groupby(pulls, _is_straight))[1])
        if isinstance(above, Top):
            run = run[:1]
        elif straight:
            del pulls[: len(run)]
            for step in straight_steps(run, above, solver.share, solver.order):
                yield step
                above = step[1]
            continue
        elif solver.order == "codes-first" or above.scale != 0:
            run = tried(run, above, solver.share)
        for i, pull in enumerate(run):
            if i and pull.tried is not None and pull.tried.scale != above.scale:  # a step above was refused
                break
            residual, above = solver.descend(pull.block, pull.p, pull.state, pull.code, above, pull)
            del pulls[0]
            yield residual, above


def _is_straight(pull: Straight | Pull) -> bool:
    return isinstance(pull, Straight)


def pull_all(chain: Chain, theta: Theta, trace: Any, blocks: Sequence[int], above: Above) -> list[Any]:
    """What is known of consecutive blocks, from the last on, before any length, in one sum: of each a `Straight` or a
    `Pull`. Sets the square of a `Top`."""
    found: list[Any] = []
    top = isinstance(above, Top)
    pairs = [[(above.delta, above.delta)]] if top else []
    delta = above.delta
    for l in blocks:
        block, p, state, code = chain.blocks[l], theta[l], trace.states.pop(), trace.values.pop()
        last = top and not found
        if block.straight and not last:
            found.append(pulled(block, p, state, delta))
            pairs.append([(found[-1].g, found[-1].g)])
        else:
            g, jvp = block.vjp_and_jvp(p, state, delta)
            Jg = jvp()
            HJg = above.start.hessian(Jg) if last else Jg
            found.append(Pull(block, p, state, code, g, Jg, HJg))
            pairs.append(length_pairs(None, g, Jg, HJg) + [(code, code)] * (not last))
        delta = found[-1].below
    sums = iter(inners(*itertools.chain(*pairs)))
    numbers: list[list[Any]] = [[next(sums) for _ in own] for own in pairs]
    if isinstance(above, Top):
        above.square = numbers.pop(0)[0]
        numbers[0].append(None)
    return [
        each._replace(square=own[0])
        if isinstance(each, Straight)
        else each._replace(products=own[:-1], code_square=own[-1])
        for each, own in zip(found, numbers, strict=True)
    ]


def tried(run: Sequence[Pull], above: Ask, share: float) -> list[Pull]:
    """The steps of consecutive codes, as if none were refused, with all that is left above them in one sum."""
    found = []
    for pull in run:
        a, square = best_length(None, pull.g, pull.Jg, pull.HJg, above.square, above.price, share, pull.products)
        r, state = above.reach(pull.block, pull.p, pull.state, pull.code, a, pull.g, square, pull.Jg, pull.code_square)
        found.append((above, r, state))
        above = Ask(pull.g, square, above.scale * a, above.scale * a)
    squares = inners(*((r, r) for _, r, _ in found))
    return [
        pull._replace(tried=Tried(ask.scale, r, state, ask.at(r, rr)))
        for pull, (ask, r, state), rr in zip(run, found, squares, strict=True)
    ]


def at_rest(
    chain: Chain, theta: Theta, trace: Any, blocks: Sequence[int], above: Ask, order: str
) -> Iterator[tuple[Residual, Ask]]:
    """Consecutive blocks below a code that has not moved, so that the codes below them do not either: r = delta at the
    encoded codes. The squares of what they hand down are one sum."""
    found = []
    delta = above.delta
    for l in blocks:
        state = trace.states.pop()
        trace.values.pop()
        delta, grads = chain.blocks[l].vjp_and_grads(theta[l], state, delta)
        found.append((state, delta, grads))
    squares = inners(*((g, g) for _, g, _ in found))
    for (state, g, grads), square in zip(found, squares, strict=True):
        residual = above.residual(state.core, above.start, order)._replace(grads=grads)
        above = Ask(g, square, 0.0, 0.0)
        yield residual, above
