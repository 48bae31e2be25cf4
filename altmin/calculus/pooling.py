"""Max-pooling: windows that overlap, and windows that do not."""

import copy
import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from altmin.calculus.base import Map, Params, Saved
from altmin.calculus.context import LOCAL, Context


class MaxPool(Map):
    """Each output of max-pooling is the largest input of its window; `saved` holds the input and the places of these
    maxima."""

    def __init__(self, module: Any):
        super().__init__(module)
        self.with_places = copy.copy(module)
        self.with_places.return_indices = True

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        y, winners = self.with_places(x)
        return y, (x, winners)

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        x, winners = saved
        if isinstance(self.module, nn.MaxPool2d):
            m = self.module
            sizes = (_for_each(2, n) for n in (m.kernel_size, m.stride, m.padding, m.dilation))
            return torch.ops.aten.max_pool2d_with_indices_backward(v, x, *sizes, m.ceil_mode, winners)
        flat = v.new_zeros(x.shape).flatten(2)
        return flat.scatter_add_(2, winners.flatten(2), v.flatten(2)).view(x.shape)

    def jvp(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        winners: Tensor = saved[1]
        return u.flatten(2).gather(2, winners.flatten(2)).view(winners.shape)


class SeparatePool(MaxPool):
    """Max-pooling whose windows do not overlap, so that no input wins twice: it selects. A tournament over the places
    of a window finds the winner, on a CPU many times faster than torch's kernel."""

    selects = True

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        m, dims = self.module, x.ndim - 2
        kernel, stride = (_for_each(dims, n) for n in (m.kernel_size, m.stride))
        counts = [(n - k) // s + 1 for n, k, s in zip(x.shape[2:], kernel, stride, strict=True)]
        places: list[Any] = [
            (..., *(slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(start, counts, stride, strict=True)))
            for start in itertools.product(*map(range, kernel))
        ]
        best, number = _tournament([x[place] for place in places])
        grid = torch.arange(math.prod(x.shape[2:]), device=x.device).view(x.shape[2:])
        first_window = grid[tuple(map(slice, kernel))].flatten()
        return best, (x, grid[places[0]] + first_window[number.long()])


def _for_each(dims: int, n: int | Sequence[int]) -> tuple[int, ...]:
    """Return a size in each direction, as torch's modules have it: one for all, or one for each."""
    return (n,) * dims if isinstance(n, int) else tuple(n)


def _tournament(places: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return for each window the largest value and the number of its place."""
    best, *rivals = (place.contiguous() for place in places)  # each is read several times
    winner = torch.zeros_like(best, dtype=torch.uint8)
    numbers = torch.arange(len(places), dtype=torch.uint8, device=best.device)
    for number, rival in zip(numbers[1:], rivals, strict=True):
        # a later winner has the larger number; on a CPU arithmetic of bytes is many times faster than a mask
        winner = winner.maximum((rival > best) * number)
        best = best.maximum(rival)
    return best, winner


def windows_are_separate(m: Any) -> bool:
    """Return whether `SeparatePool` serves a module: windows side by side, of 2 to 256 places (a byte numbers them)."""
    if hasattr(m, "output_size") or m.ceil_mode:
        return False
    dims = int(type(m).__name__[-2])
    kernel, *others = (_for_each(dims, n) for n in (m.kernel_size, m.stride, m.padding, m.dilation))
    plain = all(k <= s and p == 0 and d == 1 for k, s, p, d in zip(kernel, *others, strict=True))
    return plain and 1 < math.prod(kernel) <= 256
