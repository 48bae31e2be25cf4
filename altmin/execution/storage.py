"""Parameters side by side: all that one optimizer group trains lies in one tensor, equal layers as one stack.

The modules' own parameters become views into it, and so do the optimizer's moments, so that model and optimizer stay
what they were to everybody else.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from altmin.calculus import Linear, ReLU
from altmin.chain import Block, Chain


class Run(NamedTuple):
    """Blocks first..last, all a rectifier and a Linear layer of one shape: weights (blocks, n, n), and where the
    gradients of weights and biases (blocks, n), if there are any, go."""

    first: int
    last: int
    W: Tensor
    dW: Tensor
    db: Tensor | None

    def __contains__(self, l: object) -> bool:
        return isinstance(l, int) and self.first <= l <= self.last


class Group(NamedTuple):
    """What one optimizer group trains, flat: the weights and their gradients. Those of runs lie first."""

    flat: Tensor
    grads: Tensor
    params: list[nn.Parameter]

    def write(self, grads: Mapping[nn.Parameter, Tensor]) -> None:
        """Puts the gradients of all parameters, or of those outside of runs, in their places."""
        own = [grads[p].reshape(-1) for p in self.params if p in grads]
        if own:
            size = sum(len(part) for part in own)
            torch.cat(own, out=self.grads[len(self.grads) - size :])


class Storage:
    """Moves the trained parameters of a chain together, in the order of the optimizer's groups."""

    def __init__(self, chain: Chain, optimizer: torch.optim.Optimizer):
        self.groups: list[Group] = []
        self.runs: list[Run] = []
        self.grads: dict[nn.Parameter, Tensor] = {}
        for group in optimizer.param_groups:
            trained = [p for p in group["params"] if p.requires_grad and p.numel()]
            spans = [(a, b) for a, b in equal_blocks(chain) if _all_in(chain.blocks[a : b + 1], trained)]
            order = list(_ordered(chain, spans, trained))
            nothing = (
                chain.blocks[0].parameters()[0].detach().flatten()[:0]
            )  # on the model's device, whatever is trained
            flat = torch.cat([nothing, *(p.detach().reshape(-1) for p in order)])
            grads = torch.zeros_like(flat)
            for p, part, grad in zip(order, _views(flat, order), _views(grads, order), strict=True):
                p.data, self.grads[p] = part, grad
            self.groups.append(Group(flat, grads, order))
            self.runs += [self._run(chain, a, b) for a, b in spans]

    def view(self, flat: Tensor, group: Group, p: nn.Parameter) -> Tensor:
        """The part of a tensor like `group.flat` that belongs to p."""
        return next(part for q, part in zip(group.params, _views(flat, group.params), strict=True) if q is p)

    def _run(self, chain: Chain, a: int, b: int) -> Run:
        first, size = chain.blocks[a].parameters(), b - a + 1

        def stacked(t: Tensor) -> Tensor:
            return t.as_strided((size, *t.shape), (t.numel(), *t.stride()))

        dW, *db = [stacked(self.grads[p]) for p in first]
        return Run(a, b, stacked(first[0].data), dW, db[0] if db else None)


def equal_blocks(chain: Chain) -> list[tuple[int, int]]:
    """First and last of every row of two or more hidden blocks that are alike, so that one batched product serves all.

    >>> import altmin
    >>> equal_blocks(altmin.split(altmin.models.mlp(4, (3, 3, 3, 2), 2)))
    [(1, 2)]
    """
    kinds = [None, *(_kind(block) for block in chain.blocks[1:-1])]  # below the first block there is no code
    rows, start = [], 0
    for kind, members in itertools.groupby(kinds):
        size = len(list(members))
        if kind is not None and size > 1:
            rows.append((start, start + size - 1))
        start += size
    return rows


def _kind(block: Block) -> tuple[tuple[int, ...], ...] | None:
    """Equal for blocks that can be stacked; None for one that cannot."""
    plain = [type(m) for m in block.maps] == [ReLU, Linear]
    return tuple(tuple(p.shape) for p in block.parameters()) if plain else None


def _all_in(blocks: Sequence[Block], trained: Sequence[nn.Parameter]) -> bool:
    known = {id(p) for p in trained}
    return all(id(p) in known for block in blocks for p in block.parameters())


def _ordered(chain: Chain, spans: Sequence[tuple[int, int]], trained: Sequence[nn.Parameter]) -> Iterator[nn.Parameter]:
    """The trained parameters, those of equal blocks weights first, then biases."""
    stacked: set[int] = set()
    for a, b in spans:
        rows = [block.parameters() for block in chain.blocks[a : b + 1]]
        for column in zip(*rows, strict=True):
            yield from column
            stacked |= {id(p) for p in column}
    yield from (p for p in trained if id(p) not in stacked)


def _views(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    return [part.view(p.shape) for part, p in zip(flat.split([p.numel() for p in like]), like, strict=True)]
