"""Max-pooling: windows that overlap, and windows that do not."""

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from altmin.calculus.base import Map, Params, Saved, divisor, shifted
from altmin.calculus.numbers import Number, vectorised
from altmin.fusing import fusible, fusible_alone


class MaxPool(Map):
    """Max-pooling hands each output the input that won; `saved` holds the input and the winners' places."""

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        y, winners = self._pool(x)
        return y, (x, winners)

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        x, winners = saved[:2]
        flat = v.new_zeros(x.shape).flatten(2)
        return flat.scatter_add_(2, winners.flatten(2), v.flatten(2)).view(x.shape)

    def jvp(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return self._at(u, saved[1])

    def quotient(self, p: Params, saved: Saved, u: Tensor, e: Number) -> tuple[Tensor, Saved]:
        x, winners = saved[:2]
        new = self.forward(p, shifted(x, u, e))[1]
        return (self._at(x, winners) - self._at(x, new[1])) / divisor(e) + self._at(u, new[1]), new

    def _pool(self, x: Tensor) -> tuple[Tensor, Tensor]:
        m = self.module
        pool = getattr(
            F, type(m).__name__.replace("AdaptiveMaxPool", "adaptive_max_pool").replace("MaxPool", "max_pool")
        )
        if hasattr(m, "output_size"):
            return pool(x, m.output_size, return_indices=True)
        return pool(x, m.kernel_size, m.stride, m.padding, m.dilation, ceil_mode=m.ceil_mode, return_indices=True)

    @staticmethod
    def _at(x: Tensor, places: Tensor) -> Tensor:
        return x.flatten(2).gather(2, places.flatten(2)).view(places.shape)


class SeparatePool(Map):
    """Max-pooling whose windows do not overlap, so that no input wins twice: it selects.

    A tournament over the places of a window finds the winner and its lead over the second in one go. `saved` holds the
    input, the winner's number in its window, and the lead.
    """

    selects = True

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        best, winner, lead = _tournament([x[place] for place in self._places(x)])
        return best, (x, winner, lead)

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return self.spread((torch.empty_like(saved[0]), *saved[1:]), v)

    def spread(self, saved: Saved, u: Tensor) -> Tensor:
        x, winner = saved[:2]
        _hand_back(x, u, winner, self._places(x))
        return x

    def jvp(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return self._at(u, saved[1])

    quotient = MaxPool.quotient

    def room(self, saved: Saved, below: Tensor | None) -> Tensor | None:
        _, winner, lead = saved
        return lead if below is None else lead.minimum(self._at(below, winner))

    def _at(self, x: Tensor, winner: Tensor) -> Tensor:
        return sum(torch.where(winner == i, x[place], 0) for i, place in enumerate(self._places(x)))  # type: ignore[return-value]

    def _places(self, x: Tensor) -> list[Any]:
        """For each place in a window, where all windows have it."""
        dims = x.ndim - 2
        kernel, stride = (
            ((n,) * dims if isinstance(n, int) else n) for n in (self.module.kernel_size, self.module.stride)
        )
        ends = [(n - k) // s * s + 1 for n, k, s in zip(x.shape[2:], kernel, stride, strict=True)]
        return [
            (..., *(slice(a, a + end, s) for a, end, s in zip(start, ends, stride, strict=True)))
            for start in itertools.product(*map(range, kernel))
        ]


@fusible
def _tournament(places: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Of each window the largest value, its place, and its lead over the second."""
    best, *rivals = (place.contiguous() for place in places)  # each is read several times
    second = torch.full_like(best, -torch.inf)
    winner = torch.zeros_like(best, dtype=torch.uint8)
    for number, rival in enumerate(rivals, 1):
        # a later winner has the larger number; on a CPU arithmetic of bytes is many times faster than a mask
        winner = winner.maximum(_byte(rival > best) * number)
        second = second.maximum(best.minimum(rival))
        best = best.maximum(rival)
    return best, winner, best - second


def _byte(mask: Tensor) -> Tensor:
    """True as 1; a view where there can be one."""
    return mask.to(torch.uint8) if mask.is_cuda or vectorised() else mask.view(torch.uint8)


@fusible_alone
def _hand_back(x: Tensor, u: Tensor, winner: Tensor, places: list[Any]) -> None:
    """Overwrites x with zeros and, at the winners' places, u."""
    x.zero_()
    for number, place in enumerate(places):
        x[place].copy_(u).mul_(winner == number)


def windows_are_separate(m: Any) -> bool:
    """Whether `SeparatePool` serves a module: windows side by side, of 2 to 256 places (a byte numbers them)."""
    if hasattr(m, "output_size") or m.ceil_mode:
        return False
    kernel, stride, padding, dilation = (torch.as_tensor(n) for n in (m.kernel_size, m.stride, m.padding, m.dilation))
    dims = int(type(m).__name__[-2])
    places = int(kernel.prod()) if kernel.ndim else int(kernel) ** dims
    plain = (kernel <= stride).all() and (padding == 0).all() and (dilation == 1).all()
    return bool(plain) and 1 < places <= 256
