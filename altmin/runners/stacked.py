"""Equal layers together: the products that need not wait for each other are done at once.

What is handed down does not depend on how far codes move (see `codes.gradient.straight_step`), so of the products of a
block

    encode  W a        vjp  W^T delta        jvp  W u        gradient  r^T a

only the first two are done one block after the other. The jvps and the gradients of a run of equal blocks are one
batched product each: 2L + 2 products on the longest path, where backprop has 3L one after the other.
"""

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from altmin.calculus import Linear, Number, Params, ReLU, gate, products
from altmin.calculus.numbers import TINY
from altmin.common.fusing import fusible_alone
from altmin.core.chain import Block, Chain, Theta
from altmin.core.codes.above import Above, Ask, Residual, Top, fitted
from altmin.core.codes.gradient import GradientCodes, Trace
from altmin.core.codes.linesearch import length_bound, line_search


class Run(NamedTuple):
    """Blocks first..last, all a rectifier and a Linear layer of one shape. W: their weights, (blocks, n, n), of which
    the modules' own parameters are views."""

    first: int
    last: int
    W: Tensor


class StackedCodes:
    """One exact step for each code as `GradientCodes` takes it, the blocks of each run together.

    gradients: whether those of a run's parameters are wanted, as one product. They are in `grads`, by block, from when
    the block's residual is yielded.
    """

    def __init__(self, solver: GradientCodes, runs: Sequence[Run], gradients: bool = True):
        if not solver.one_exact_step:
            raise ValueError(f"only single exact steps are taken together, not those of {solver!r}")
        self.solver, self.runs, self.gradients = solver, {run.last: run for run in runs}, gradients
        self.grads: dict[int, Params] = {}

    def __call__(self, chain: Chain, theta: Theta, trace: Trace, top: Top) -> Iterator[tuple[int, Residual]]:
        """Moves the codes from the last to the first; yields every block's number and residual on the way."""
        above: Above = top
        trace.values.pop()
        while (l := len(trace.values)) > 0:
            run = self.runs.get(l)
            if run is None or not isinstance(above, Ask):
                residual, above = self.solver.move(chain, theta, trace, l, above)
                yield l, residual
                del residual
            else:
                residuals, above = self._move(run, chain, theta, trace, above)
                for l in range(run.last, run.first - 1, -1):
                    yield l, residuals.pop()
        yield 0, above.residual(trace.states.pop().core, above.start, self.solver.order)

    def _move(self, run: Run, chain: Chain, theta: Theta, trace: Trace, above: Ask) -> tuple[list[Residual], Ask]:
        """Moves the codes below the blocks of a run; the blocks' residuals, first to last, and what the last code to
        move asks of its own block."""
        deltas, inputs = [above.delta], []
        for l in range(run.last, run.first - 1, -1):
            x = trace.states.pop().core[0]
            trace.values.pop()
            deltas.append(gate(chain.blocks[l].core.maps[0].vjp(theta[l], x, deltas[-1]), x))
            inputs.append(x)
        # from here on from the first block to the last, as the weights lie; row i + 1 is what is asked of block i
        delta, x = torch.stack(deltas[::-1]), torch.stack(inputs[::-1])
        del deltas, inputs
        share, scale, longest = self.solver.share, _tensor(above.scale, x), _tensor(above.longest, x)
        u, uu, squares, bound, longest = _clipped(delta, x, longest, share)
        q = products.batched(u.flatten(1, -2), run.W.mT).view(u.shape)
        size = _tensor(above.offset_square, x)
        moved, r, scales, costs, moves = _moved(x, u, delta, above.position, q, uu, squares, size, bound, scale, share)
        del q, x
        left = r if self.solver.order == "codes-first" else delta[1:]
        if self.gradients:
            self._set_gradients(run, theta, moved, left)
        residuals = [
            fitted([moved[i]], left[i], scales[i + 1], costs[i], moves[i]) for i in range(run.last - run.first + 1)
        ]
        return residuals, Ask(delta[0], squares[0], scales[0], longest[0], partial(u.__getitem__, 0), uu[0])

    def _set_gradients(self, run: Run, theta: Theta, inputs: Tensor, deltas: Tensor) -> None:
        deltas = deltas.flatten(1, -2)  # samples, and what else a Linear layer maps by itself
        W = products.batched(deltas.mT, inputs.flatten(1, -2))
        b = _sum_of_rows(deltas)
        self.grads |= {l: (W[i], b[i])[: len(theta[l])] for i, l in enumerate(range(run.first, run.last + 1))}


@fusible_alone
def _clipped(delta: Tensor, x: Tensor, longest: Tensor, share: float) -> tuple[Tensor, ...]:
    """`clipped` for every block of a run, whose rectifiers' outputs are x: u and |u|^2, |delta|^2 of what is asked of
    the code below the run and of each block, the bounds on the lengths, and those on the scales."""
    squares = (delta * delta).flatten(1).sum(1)
    bound: Any = length_bound(squares[1:], squares[:-1], share)
    scales = longest * bound.flip(0).cumprod(0).flip(0)
    u = delta[:-1].minimum(x / _column(scales.clamp_min(TINY), x))
    return u, (u * u).flatten(1).sum(1), squares, bound, scales


@fusible_alone
def _moved(
    x: Tensor,
    u: Tensor,
    delta: Tensor,
    offset: Tensor,
    q: Tensor,
    uu: Tensor,
    squares: Tensor,
    size: Tensor,
    bound: Tensor,
    scale: Tensor,
    share: float,
) -> tuple[Tensor, ...]:
    """`straight_move` for every block of a run: inputs moved along u, what is left of all that is asked, the scales of
    the codes (of that above the run last), |c - W a|^2 and the square of each code's offset. offset, size and scale are
    of the code above the run."""
    offsets, sizes = torch.cat([u[1:], offset.unsqueeze(0)]), torch.cat([uu[1:], size.view(1)])
    search: Any = line_search
    given = delta[1:], offsets, q, uu, squares[1:], sizes, bound
    a, r, rr = torch.func.vmap(lambda *each: search(*each, share))(*given)
    scales = torch.cat([scale.view(1), a.flip(0)]).cumprod(0).flip(0)
    m = scales[1:] * scales[1:]
    return x - _column(scales[:-1], x) * u, r, scales, m * rr, m * sizes


@fusible_alone
def _sum_of_rows(deltas: Tensor) -> Tensor:
    return deltas.sum(1)


def stack_weights(chain: Chain) -> list[Run]:
    """Puts the weights of equal blocks side by side in memory, where they do not lie so already; their values stay."""
    return [Run(a, b, _stacked([block.parameters()[0] for block in chain.blocks[a : b + 1]])) for a, b in runs(chain)]


def runs(chain: Chain) -> list[tuple[int, int]]:
    """First and last of every row of two or more hidden blocks that are alike, so that one batched product does for
    all. The first block is in none: there is no code below it.

    >>> import altmin
    >>> runs(altmin.split(altmin.models.mlp(4, (3, 3, 3, 2), 2)))
    [(1, 2)]
    """
    kinds = [None, *(_kind(block) for block in chain.blocks[1:-1])]
    rows, start = [], 0
    for kind, members in itertools.groupby(kinds):
        size = len(list(members))
        if kind is not None and size > 1:
            rows.append((start, start + size - 1))
        start += size
    return rows


def _kind(block: Block) -> tuple[tuple[int, ...], ...] | None:
    """Equal for blocks that can be stacked; None for one that cannot."""
    alike = [type(m) for m in block.maps] == [ReLU, Linear] and all(p.is_contiguous() for p in block.parameters())
    return tuple(tuple(p.shape) for p in block.parameters()) if alike else None


@torch.no_grad()
def _stacked(weights: Sequence[Tensor]) -> Tensor:
    first, size = weights[0].data, weights[0].numel()
    storage, offset = first.untyped_storage().data_ptr(), first.storage_offset()
    if all(
        w.untyped_storage().data_ptr() == storage and w.storage_offset() == offset + i * size
        for i, w in enumerate(weights)
    ):
        return first.as_strided((len(weights), *first.shape), (size, *first.stride()))
    W = torch.stack(list(weights))
    for w, part in zip(weights, W, strict=True):
        w.data = part
    return W


def _tensor(n: Number, like: Tensor) -> Tensor:
    return n if isinstance(n, Tensor) else like.new_tensor(n)


def _column(a: Tensor, like: Tensor) -> Tensor:
    """A number of each block, for all that it has."""
    return a.view(-1, *[1] * (like.ndim - 1))
