"""Contexts of steps that `torch.func`, torch.compile or a CUDA graph transforms: no number is read."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from altmin.calculus.context import Context


class FunctionalContext(Context):
    """The context of a step in one process whose numbers stay tensors."""

    def numbers(self, vector: Tensor) -> list[Any]:
        return list(vector.unbind())

    def inners(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Return what `Context` does, without comparing tensors by their ids, which torch 2.11 cannot trace."""
        return torch.stack([torch.dot(self.weighted(u).reshape(-1), v.reshape(-1)) for u, v in pairs])

    def choose(self, condition: Any, first: Sequence[Any], second: Sequence[Any]) -> Sequence[Any]:
        return [torch.where(condition, a, b) for a, b in zip(first, second, strict=True)]

    def less(self, x: Tensor, u: Tensor, a: Any) -> Tensor:
        return torch.addcmul(x, u, a, value=-1)


class CompiledContext(FunctionalContext):
    """The context of a step compiled as a whole. A compiled function sums each row where u and v are made, and then
    all rows of all pairs in one kernel; sums over whole tensors would take two kernels for each pair."""

    def inners(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        rows = [(u * v).sum(tuple(range(1, u.ndim))) if u.ndim > 1 else u * v for u, v in pairs]
        return torch.stack([row.sum() for row in rows])
