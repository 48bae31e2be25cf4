"""Check that a model computes the output of every sample by itself, so that ranks can have some of the samples each."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor, nn

from altmin.calculus.context import BatchShard, Context
from altmin.calculus.whole_batch import Undivided, whole_batch

ROWS = 4
"""Samples with which a model is tried."""
MIXED = (
    "a model's output for a sample, or one of its buffers, depends on the other samples of the mini-batch other than "
    "by torch's batch norm, or dropout is applied to a tensor whose first dimension does not count samples; ranks have "
    "some of the samples each, so train it in one process, or by altmin.LayerParallel (nothing was changed)"
)


@dataclass(frozen=True, eq=False)
class Trial(Context):
    """The context of a pass over rows of a batch. In the first pass the sums of batch norm and the random numbers are
    noted; in a later one, over some of these rows in another order, they are the same for the same rows."""

    rows: Sequence[int] = ()
    noted: list[Tensor] = field(default_factory=list)
    again: Iterator[Tensor] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shard", BatchShard(self._begin, 0, len(self.rows), len(self.rows)))

    def _begin(self, flat: Tensor) -> Callable[[], Tensor]:
        total = self._same(lambda: flat.clone(), flat.shape)
        return lambda: total

    def draw(self, shape: Sequence[int], draw: Callable[[Sequence[int]], Tensor]) -> Tensor:
        """Return numbers in [0, 1), so that no entry is dropped."""
        like, n = draw((0, *shape[1:])), len(self.rows)
        shape = (shape[0], *like.shape[1:])
        if shape[0] % n:
            raise Undivided(MIXED)
        generator = torch.Generator().manual_seed(len(self.noted))
        numbers = self._same(lambda: torch.rand(shape, generator=generator, dtype=torch.float64).to(like), shape)
        return numbers.unflatten(0, (n, -1))[list(self.rows)].flatten(0, 1)

    def _same(self, make: Callable[[], Tensor], shape: Sequence[int]) -> Tensor:
        if self.again is None:
            self.noted.append(make())
            return self.noted[-1]
        before = next(self.again, None)
        if before is None or before.shape != torch.Size(shape):
            raise Undivided(MIXED)
        return before


class Rowwise:
    """Calls `demand_rowwise` once for every kind of batch."""

    def __init__(self) -> None:
        self.tried: set[Any] = set()

    def demand(self, model: nn.Module, x: Tensor) -> None:
        kind = (x.shape[1:], x.dtype, tuple(m.training for m in model.modules()))
        if kind in self.tried or len(x) < 2 or torch.equal(x[0], x[1]):
            return
        demand_rowwise(model, x)
        self.tried.add(kind)


def demand_rowwise(model: nn.Module, x: Tensor) -> None:
    """Raise `Undivided` if a model's output for a sample, or a buffer that its forward changes, depends on the other
    samples other than by torch's batch norm, or if it draws random numbers by itself. Copies are tried in float64, with
    the first samples of x and some of the others in their places; an error of the model's own is left to the step."""
    x = x[:ROWS].detach()
    n = len(x)
    first = Trial(rows=range(n))
    try:
        output, buffers = _called(model, x, first)
    except Undivided:
        raise
    except Exception:
        return
    if not isinstance(output, Tensor) or not output.ndim or len(output) % n:
        return
    for some in (range(1, n, 2), range(0, n, 2)):
        rows = list(islice(cycle(reversed(some)), n))
        try:
            again, others = _called(model, x[rows], Trial(rows=rows, again=iter(first.noted)))
        except Undivided:
            raise
        except Exception as error:
            raise Undivided(MIXED) from error
        expected = output.unflatten(0, (n, -1))[rows].flatten(0, 1)
        if not all(map(_close, (again, *others), (expected, *buffers))):
            raise Undivided(MIXED)


@torch.no_grad()
def _called(model: nn.Module, x: Tensor, context: Context) -> tuple[Any, list[Tensor]]:
    """Return the output of a copy of the model in float64, and its buffers after that."""
    model = copy.deepcopy(model).double()
    with whole_batch(context):
        return model(x.to(torch.float64 if x.is_floating_point() else x.dtype, copy=True)), list(model.buffers())


def _close(a: Tensor, b: Tensor) -> bool:
    """Return whether tensors are equal up to rounding, as a part of the largest entry; numbers that are not finite are
    left to the step."""
    if a.shape != b.shape or not a.is_floating_point():
        return a.shape == b.shape and torch.equal(a, b)
    scale = b.abs().max() if b.numel() else 0.0
    return bool(((a - b).abs() <= torch.finfo(a.dtype).eps ** 0.5 * scale).logical_or(~b.isfinite()).all())
