"""Maps of several inputs, which join the values in a graph of maps.

A `MultiInput` is y = f(x_1, ..., x_k; p) with the operations of a `Map`, where inputs, and what belongs to them, are
lists. A direction u_i or a gradient may be None: that of an input that does not move, or on which y has no derivative.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from altmin.calculus.base import Map, Params, Saved
from altmin.calculus.context import LOCAL, Context

Direction = Tensor | None


class MultiInput(Map):
    """A map whose inputs are a list. module: the owner of the parameters, None if there are none. At least one
    direction that it gets is a tensor."""

    several = True

    def __init__(self, module: nn.Module | None = None):
        self.module = module


class Sum(MultiInput):
    """y = x_1 + ... + x_k, of shapes that broadcast. It remembers the shapes.

    >>> m = Sum()
    >>> y, saved = m.forward((), [torch.ones(2, 3), torch.ones(2, 1)])
    >>> [v.tolist() for v in m.vjp((), saved, torch.ones(2, 3))]
    [[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]], [[3.0], [3.0]]]
    """

    def forward(self, p: Params, xs: Sequence[Tensor], context: Context = LOCAL) -> tuple[Tensor, Saved]:
        y = functools.reduce(torch.add, xs)
        return y, ([x.shape for x in xs], y.shape)

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Sequence[Direction]:
        return [v.sum_to_size(shape) for shape in saved[0]]

    def jvp(self, p: Params, saved: Saved, us: Sequence[Direction]) -> Tensor:
        return functools.reduce(torch.add, [u for u in us if u is not None]).expand(saved[1])


class Product(MultiInput):
    """y = x_1 x_2, entry by entry, of shapes that broadcast. It remembers both."""

    def forward(self, p: Params, xs: Sequence[Tensor], context: Context = LOCAL) -> tuple[Tensor, Saved]:
        a, b = xs
        return a * b, (a, b)

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Sequence[Direction]:
        a, b = saved
        return [(v * b).sum_to_size(a.shape), (v * a).sum_to_size(b.shape)]

    def jvp(self, p: Params, saved: Saved, us: Sequence[Direction]) -> Tensor:
        a, b = saved
        parts = [u * other for u, other in zip(us, (b, a), strict=True) if u is not None]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]


class Concatenation(MultiInput):
    """The inputs one after the other along a dimension. It remembers their shapes."""

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, p: Params, xs: Sequence[Tensor], context: Context = LOCAL) -> tuple[Tensor, Saved]:
        return torch.cat(list(xs), self.dim), [x.shape for x in xs]

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Sequence[Direction]:
        return v.split([shape[self.dim] for shape in saved], self.dim)

    def jvp(self, p: Params, saved: Saved, us: Sequence[Direction]) -> Tensor:
        like = next(u for u in us if u is not None)
        return torch.cat(
            [like.new_zeros(shape) if u is None else u for u, shape in zip(us, saved, strict=True)], self.dim
        )


class Aside(MultiInput):
    """A value without derivative, such as a mask or a size: it does not change while its inputs move."""

    def forward(self, p: Params, xs: Sequence[Any], context: Context = LOCAL) -> tuple[Any, Saved]:
        return self.module(*xs), None

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Sequence[Direction]:
        return []

    def jvp(self, p: Params, saved: Saved, us: Sequence[Direction]) -> Direction:
        return None
