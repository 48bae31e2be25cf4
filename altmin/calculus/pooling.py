"""Max-pooling: windows that overlap, and windows that do not."""

import copy
import itertools
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
            pulled: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(v, x, *sizes, m.ceil_mode, winners)
            return pulled
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
        return best, (x, _winners(number, kernel, stride, tuple(x.shape[2:])))


def _for_each(dims: int, n: int | Sequence[int]) -> tuple[int, ...]:
    """Return a size in each direction, as torch's modules have it: one for all, or one for each."""
    return (n,) * dims if isinstance(n, int) else tuple(n)


def _winners(number: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...], sizes: tuple[int, ...]) -> Tensor:
    """Return where the winners lie in their flattened channel, from the numbers of their places in their windows."""
    windows = _positions(number.shape[-len(sizes) :], stride, sizes, number)
    return windows + _positions(kernel, (1,) * len(sizes), sizes, number).flatten()[number.long()]


def _positions(counts: Sequence[int], steps: Sequence[int], sizes: Sequence[int], like: Tensor) -> Tensor:
    """Return the positions in a flattened channel of a grid with the given numbers of points and distances in each
    direction."""
    position = torch.zeros((), dtype=torch.int64, device=like.device)
    for n, step, size in zip(counts, steps, sizes, strict=True):
        position = position.unsqueeze(-1) * size + torch.arange(n, device=like.device) * step
    return position


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
    kernel, stride, padding, dilation = (torch.as_tensor(n) for n in (m.kernel_size, m.stride, m.padding, m.dilation))
    dims = int(type(m).__name__[-2])
    places = int(kernel.prod()) if kernel.ndim else int(kernel) ** dims
    plain = (kernel <= stride).all() and (padding == 0).all() and (dilation == 1).all()
    return bool(plain) and 1 < places <= 256
