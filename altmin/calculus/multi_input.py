"""Maps of several inputs: what a graph of maps joins its values with.

A `MultiInput` is y = f(x_1, ..., x_k; p) with the operations of a `Map`, where inputs, and what belongs to them, are
lists. A direction u_i or a gradient may be None: that of an input that does not move, or on which y has no derivative.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from altmin.calculus.base import Map, Params, Saved, shifted
from altmin.calculus.context import LOCAL, Context

Direction = Tensor | None


class MultiInput:
    """mixes_samples, uses_autograd, takes_integers, names: as of a `Map`. module: whose parameters these are, None if
    there are none. At least one direction is a tensor."""

    mixes_samples = False
    uses_autograd = False
    takes_integers = False
    names: tuple[str, ...] = ()
    module: Any = None

    def forward(self, p: Params, xs: Sequence[Any], context: Context = LOCAL) -> tuple[Tensor, Saved]:
        """y, and what the other operations need of the inputs."""
        raise NotImplementedError

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Sequence[Direction]:
        """For every input J_i^T v."""
        raise NotImplementedError

    def jvp(self, p: Params, saved: Saved, us: Sequence[Direction]) -> Direction:
        """The sum of J_i u_i."""
        raise NotImplementedError

    def quotient(self, p: Params, saved: Saved, us: Sequence[Direction], e: Tensor) -> tuple[Direction, Saved]:
        """(f(x) - f(x - e u)) / e, and `saved` at x - e u. Here that of a linear map which does not remember them."""
        return self.jvp(p, saved, us), saved

    def operands(self, p: Params) -> Params:
        """As of a `Map`."""
        return p

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        """The gradient of <v, y> for each parameter."""
        return ()

    def vjp_and_grads(self, p: Params, saved: Saved, v: Tensor) -> tuple[Sequence[Direction], Params]:
        """`vjp` and `grads` of one v."""
        return self.vjp(p, saved, v), self.grads(p, saved, v)

    def replay(self, p: Params, saved: Saved, xs: Sequence[Any]) -> tuple[Tensor, Saved]:
        """`forward` at other inputs, with the random numbers of the saved pass."""
        return self.forward(p, xs)

    def without_quotient(self, saved: Saved) -> Saved:
        """As of a `Map`."""
        return saved

    def kept(self, saved: Saved) -> Any:
        """As of a `Map`."""
        return None

    def checked(self, kept: Any) -> list[Tensor]:
        return []

    def commit(self, kept: Any) -> None:
        """As of a `Map`."""


class One(MultiInput):
    """A map of one input."""

    def __init__(self, of: Map):
        self.map, self.module, self.names = of, of.module, of.names
        self.uses_autograd, self.takes_integers = of.uses_autograd, of.takes_integers

    @property
    def mixes_samples(self) -> bool:  # type: ignore[override]
        return self.map.mixes_samples

    def forward(self, p: Params, xs: Sequence[Any], context: Context = LOCAL) -> tuple[Tensor, Saved]:
        return self.map.forward(p, xs[0], context)

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Sequence[Direction]:
        return [self.map.vjp(p, saved, v)]

    def jvp(self, p: Params, saved: Saved, us: Sequence[Any]) -> Tensor:
        return self.map.jvp(p, saved, us[0])

    def quotient(self, p: Params, saved: Saved, us: Sequence[Any], e: Tensor) -> tuple[Tensor, Saved]:
        return self.map.quotient(p, saved, us[0], e)

    def operands(self, p: Params) -> Params:
        return self.map.operands(p)

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        return self.map.grads(p, saved, v)

    def vjp_and_grads(self, p: Params, saved: Saved, v: Tensor) -> tuple[Sequence[Direction], Params]:
        g, grads = self.map.vjp_and_grads(p, saved, v)
        return [g], grads

    def replay(self, p: Params, saved: Saved, xs: Sequence[Any]) -> tuple[Tensor, Saved]:
        return self.map.replay(p, saved, xs[0])

    def without_quotient(self, saved: Saved) -> Saved:
        return self.map.without_quotient(saved)

    def kept(self, saved: Saved) -> Any:
        return self.map.kept(saved)

    def checked(self, kept: Any) -> list[Tensor]:
        return self.map.checked(kept)

    def commit(self, kept: Any) -> None:
        self.map.commit(kept)


class Sum(MultiInput):
    """y = x_1 + ... + x_k, of shapes that broadcast. It remembers the shapes.

    >>> joint = Sum()
    >>> y, saved = joint.forward((), [torch.ones(2, 3), torch.ones(2, 1)])
    >>> [v.tolist() for v in joint.vjp((), saved, torch.ones(2, 3))]
    [[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]], [[3.0], [3.0]]]
    """

    def forward(self, p: Params, xs: Sequence[Tensor], context: Context = LOCAL) -> tuple[Tensor, Saved]:
        y = xs[0] + xs[1]
        for x in xs[2:]:
            y = y + x
        return y, ([x.shape for x in xs], y.shape)

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Sequence[Direction]:
        return [v.sum_to_size(shape) for shape in saved[0]]

    def jvp(self, p: Params, saved: Saved, us: Sequence[Direction]) -> Tensor:
        total = None
        for u in us:
            if u is not None:
                total = u if total is None else total + u
        assert total is not None
        return total.expand(saved[1])


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

    def quotient(self, p: Params, saved: Saved, us: Sequence[Direction], e: Tensor) -> tuple[Tensor, Saved]:
        """(a b - (a - e u)(b - e w)) / e = u b + (a - e u) w."""
        a, b = (x if u is None else shifted(x, u, e) for x, u in zip(saved, us, strict=True))
        return self.jvp(p, (a, saved[1]), us), (a, b)


class Concatenation(MultiInput):
    """The inputs one after the other along a dimension. It remembers their shapes."""

    def __init__(self, dim: int):
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
    """A value without derivative, such as a mask or a size: it stays as it is while its inputs move."""

    def __init__(self, module: nn.Module):
        self.module = module

    def forward(self, p: Params, xs: Sequence[Any], context: Context = LOCAL) -> tuple[Any, Saved]:
        return self.module(*xs), None

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Sequence[Direction]:
        return []

    def jvp(self, p: Params, saved: Saved, us: Sequence[Direction]) -> Direction:
        return None
