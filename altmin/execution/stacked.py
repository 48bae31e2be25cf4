"""Equal layers together: the products that need not wait for each other are done at once.

A code's longest step depends on the one above it alone (see `codes.settle`), so of the products of a block

    encode  W a        pull  W^T t        push  W u        gradient  r a^T

only the first two must be done one block after the other. The pushes and the gradients of a run of equal blocks are one
batched product each: 2L + 2 products on the longest path, where backprop has 3L one after the other.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from altmin.calculus import products
from altmin.chain import Chain, Theta
from altmin.codes.gradient import GradientCodes, Local, Trace, magnify
from altmin.codes.linesearch import Above, FitAbove, LossAbove, Mu, best_fit
from altmin.execution.storage import Run
from altmin.fusing import fusible
from altmin.objective import Evaluation


class Settled(NamedTuple):
    """The problems of a run's blocks, stacked: inputs, residuals of all of t, and the part of t that is asked for."""

    core: Tensor
    force: Tensor
    spared: Tensor


class StackedCodes:
    """As `GradientCodes` with one exact step; the blocks of each run together."""

    def __init__(self, solver: GradientCodes, runs: Sequence[Run]):
        self.solver, self.runs = solver, {run.last: run for run in runs}
        self.settled: dict[int, Settled] = {}

    def __call__(self, chain: Chain, theta: Theta, trace: Trace, top: LossAbove, mu: Mu) -> list[Local]:
        problems: list[Local] = []
        above: Above = top
        trace.values.pop()
        l = len(chain) - 1
        while l > 0:
            run = self.runs.get(l)
            if run is None:
                problem, above = self.solver.give_way(chain, theta, trace, l, above, mu)
                problems.append(problem)
                above = magnify(above) if (len(chain) - l) % 8 == 0 else above
                l -= 1
            else:
                found, above = self._give_way(run, chain, theta, trace, above)
                problems += found
                l = run.first - 1
        problems.append(Local(trace.states[0].core, above, above.start))
        return problems[::-1]

    def _give_way(
        self, run: Run, chain: Chain, theta: Theta, trace: Trace, above: Above
    ) -> tuple[list[Local], FitAbove]:
        """The codes below the blocks of a run, the last that the trace still holds, one after the other and then all
        at once."""
        assert isinstance(above, FitAbove)
        terms, scales, inputs, steps, squares = [above], [], [], [], []
        for l in range(run.last, run.first - 1, -1):
            state = trace.states.pop()
            trace.values.pop()
            u, uu = above.longest(chain.blocks[l], theta[l], state)
            scales.append(above.scale)
            above = FitAbove(u, uu, above.scale, doubts=above.doubts)
            above = magnify(above) if (len(chain) - l) % 8 == 0 else above
            assert isinstance(above, FitAbove)
            terms.append(above)
            inputs.append(state.input)
            steps.append(u)
            squares.append(uu)
        # from here on from the first block to the last, as the weights lie
        asked = [term.start.force for term in terms[:-1]]
        t, u, x = (torch.stack(each[::-1]) for each in (asked, steps, inputs))
        dy = products.batched(u.flatten(1, -2), run.W.mT).view(u.shape)
        fits = best_fit(t.flatten(0, 1), dy.flatten(0, 1), torch.cat(squares[::-1]))
        share, r, values = (each.unflatten(0, t.shape[:2]) for each in fits)
        spared = _left(share, terms[0].spared)
        core, spared, true = _cut(x, u, spared, _vector(scales[::-1], x), _vector([e.scale for e in terms[::-1]], x))
        for term, part, scale in zip(terms[::-1], spared, true.unbind(), strict=True):
            term.spared, term.scale = part, scale
        self.settled[run.last] = Settled(core, r, spared[1:])
        problems = [
            Local([core[i]], term.served(), Evaluation(r[i], values[i], r[i], None))
            for i, term in enumerate(terms[-2::-1])
        ]
        return problems[::-1], terms[-1]

    def gradients(self, run: Run, scales: Sequence[Any]) -> None:
        """Writes those of the weights of a run's blocks to where they belong; scales are those of all blocks."""
        core, force, spared = self.settled.pop(run.last)
        factors = torch.stack(list(scales[run.first : run.last + 1])).to(force.dtype)  # with a mu in double precision
        force = _weighted(force, spared, factors).flatten(1, -2)  # samples, and what else a Linear layer maps by itself
        products.batched(force.mT, core.flatten(1, -2), out=run.dW)
        if run.db is not None:
            torch.sum(force, 1, out=run.db)


def _left(share: Tensor, spared: Tensor | None) -> Tensor:
    """Of the longest steps the parts that are left: those below the first block, and, in one row more, above each. In
    double precision, as products of many shares are small."""
    rows = [torch.ones_like(share[0]) if spared is None else spared, *share.flip(0)]
    return torch.stack(rows).double().cumprod(0).flip(0)


@fusible
def _cut(x: Tensor, u: Tensor, spared: Tensor, before: Tensor, scales: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs moved on by what is left of u; and for the weights, what is left at a size that single precision can hold,
    with the scales that this makes."""
    core = torch.addcmul(x, _column((spared[:-1] / before.unsqueeze(1)).to(x.dtype), u), u)
    largest = spared.amax(1).clamp_min(torch.finfo(spared.dtype).tiny)
    return core, (spared / largest.unsqueeze(1)).to(x.dtype), (scales / largest).to(x.dtype)


@fusible
def _weighted(force: Tensor, spared: Tensor, factors: Tensor) -> Tensor:
    return force * _column(spared * factors.unsqueeze(1), force)


def _column(a: Tensor, like: Tensor) -> Tensor:
    """Numbers of each block and sample, for all that they have."""
    return a.view(*a.shape, *[1] * (like.ndim - 2))


def _vector(scales: Sequence[Tensor | float], like: Tensor) -> Tensor:
    """Scales in double precision; those that are no tensors are 1."""
    one = like.new_ones(())
    return torch.stack([s if isinstance(s, Tensor) else one for s in scales]).double()
