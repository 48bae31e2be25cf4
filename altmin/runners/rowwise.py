"""Whether a model computes the output of every sample by itself, so that ranks can have some of the samples each."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor, nn

from altmin.calculus.context import BatchShard, Context
from altmin.calculus.whole_batch import Undivided, whole_batch
from altmin.common.unchanged import same_attributes

ROWS = 4
"""Samples with which a model is tried."""


class Mixed(Exception):
    """A pass over other rows does not have the numbers of the first one."""


@dataclass(frozen=True, eq=False)
class Trial(Context):
    """The context of a pass over rows of a batch. In the first pass the sums of batch norm and the random numbers are
    kept; in a later one, over some of these rows in another order, they are the same for the same rows."""

    rows: Sequence[int] = ()
    kept: list[Tensor] = field(default_factory=list)
    again: Iterator[Tensor] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shard", BatchShard(self._begin, 0, len(self.rows), len(self.rows)))

    def _begin(self, flat: Tensor) -> Callable[[], Tensor]:
        found = self._kept(lambda: flat.clone(), flat.shape)
        return lambda: found

    def draw(self, shape: Sequence[int], draw: Callable[[Sequence[int]], Tensor]) -> Tensor:
        """Numbers in [0, 1), so that no entry is dropped."""
        like, n = draw((0, *shape[1:])), len(self.rows)
        shape = (shape[0], *like.shape[1:])
        if shape[0] % n:
            raise Mixed
        generator = torch.Generator().manual_seed(len(self.kept))
        numbers = self._kept(lambda: torch.rand(shape, generator=generator, dtype=torch.float64).to(like), shape)
        return numbers.unflatten(0, (n, -1))[list(self.rows)].flatten(0, 1)

    def _kept(self, make: Callable[[], Tensor], shape: Sequence[int]) -> Tensor:
        if self.again is None:
            self.kept.append(make())
            return self.kept[-1]
        found = next(self.again, None)
        if found is None or found.shape != torch.Size(shape):
            raise Mixed
        return found


class Rowwise:
    """`demand_rowwise` once for every kind of batch."""

    def __init__(self) -> None:
        self.tried: set[Any] = set()

    def demand(self, model: nn.Module, x: Tensor) -> None:
        kind = (x.shape[1:], x.dtype, tuple(m.training for m in model.modules()))
        if kind in self.tried or len(x) < 2 or torch.equal(x[0], x[1]):
            return
        demand_rowwise(model, x)
        self.tried.add(kind)


def demand_rowwise(model: nn.Module, x: Tensor) -> None:
    """`Undivided` if a model's output for a sample, or a buffer that its forward changes, depends on the other samples
    other than by torch's batch norm, or if it draws random numbers by itself. Tried with the first samples of x, in
    each case with some of the others in their places. Changes nothing; an error of the model's own is left to the step.
    """
    x = x[:ROWS].detach()
    with torch.no_grad(), same_attributes(model):
        if _mixes(model, x, {}) and _mixes_in_float64(model, x):
            raise Undivided(
                f"the output of {type(model).__name__} for a sample, or one of its buffers, depends on the other "
                "samples of the mini-batch other than by torch's batch norm, or dropout is applied to a tensor whose "
                "first dimension does not count samples; ranks have some of the samples each, so train it in one "
                "process, or by altmin.LayerParallel (nothing was changed)"
            )


def _mixes_in_float64(model: nn.Module, x: Tensor) -> bool:
    """As `_mixes`, where rounding plays no part. True if the model cannot be called so."""
    held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    wide = {name: t.double() for name, t in held.items() if t.is_floating_point()}
    try:
        return _mixes(model, x.double() if x.is_floating_point() else x, wide, otherwise=True)
    except Undivided:
        raise
    except Exception:
        return True


def _mixes(model: nn.Module, x: Tensor, given: dict[str, Tensor], otherwise: bool = False) -> bool:
    """Whether outputs or buffers change with the other samples. given: other parameters and buffers. otherwise: the
    answer if the model fails with these samples or returns something else than a tensor."""
    n = len(x)
    first = Trial(rows=range(n))
    try:
        output, buffers = _called(model, x, given, first)
    except Undivided:
        raise
    except Mixed:
        return True
    except Exception:
        return otherwise
    if not isinstance(output, Tensor) or not output.ndim or len(output) % n:
        return otherwise
    for some in (range(1, n, 2), range(0, n, 2)):
        rows = list(islice(cycle(reversed(some)), n))
        again = Trial(rows=rows, again=iter(first.kept))
        try:
            found, others = _called(model, x[rows], given, again)
        except Undivided:
            raise
        except Exception:
            return True
        if found.shape != output.shape or not _close(found, output.unflatten(0, (n, -1))[rows].flatten(0, 1)):
            return True
        if not all(map(_close, others, buffers)):
            return True
    return False


def _called(model: nn.Module, x: Tensor, given: dict[str, Tensor], context: Context) -> tuple[Any, list[Tensor]]:
    """The output, and the buffers as the forward leaves them."""
    names = [name for name, _ in model.named_buffers()]
    held = {**given, **{name: given.get(name, b).clone() for name, b in model.named_buffers()}}
    with whole_batch(context):
        output = torch.func.functional_call(model, held, (x.clone(),))
    return output, [held[name] for name in names]


def _close(a: Tensor, b: Tensor) -> bool:
    """Up to rounding, as a part of the largest entry; numbers that are not finite are left to the step."""
    if a.shape != b.shape:
        return False
    if not a.is_floating_point():
        return torch.equal(a, b)
    scale = b.abs().max() if b.numel() else 0.0
    return bool(((a - b).abs() <= torch.finfo(a.dtype).eps ** 0.5 * scale).logical_or(~b.isfinite()).all())
