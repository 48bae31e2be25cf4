"""What one module does to a small change.

A `Map` is one module y = f(x; p) with five operations, each local to the module:

    forward     y, and what the other operations need to know of x (`saved`)
    vjp         J^T v, from the output's side to the input's
    jvp         J u, from the input's side to the output's
    quotient    (f(x) - f(x - e u)) / e without cancellation, and `saved` at x - e u
    grads       the gradients of <v, y> with respect to the parameters p

Linear layers, convolutions, normalisations, element-wise activations and pooling have closed forms; any other module
goes through autograd on that module alone.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from altmin.calculus.context import LOCAL, Context

Params = Sequence[Tensor]
Saved = Any
SMALLEST = 1e-15
"""Smaller steps use the quotient of this one, which equals the derivative up to rounding."""


def divisor(e: Tensor) -> Tensor:
    """e, kept away from zero, to divide a change by."""
    return e.clamp_min(SMALLEST)


class Map:
    """One module.

    mixes_samples: a sample's output depends on the other samples. selects: each output is one of the inputs, none
    chosen twice, or zero; see `Block.piecewise_linear`. affine: the output is linear in the input and in the
    parameters. is_linear: its parameters are one matrix, found by regression from `columns`. uses_autograd: it has no
    closed form and goes through autograd. several: x, u and what `vjp` returns are lists, with an entry for each input
    (see `MultiInput`). names: of the parameters, in the order of p.

    p: the parameters, passed to every operation. u and v: of the input's and the output's shape. No
    operation but `commit` changes the module or its arguments.
    """

    selects = False
    mixes_samples = False
    affine = False
    is_linear = False
    uses_autograd = False
    several = False
    names: tuple[str, ...] = ()

    def __init__(self, module: nn.Module):
        self.module: Any = module
        self.names = tuple(name for name, _ in module.named_parameters())

    @property
    def inner(self) -> Sequence[Any]:
        """The maps that it consists of: this one."""
        return (self,)

    def forward(self, p: Params, x: Any, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        """y, and what the other operations need of x, and of the context if they need it."""
        raise NotImplementedError

    def vjp(self, p: Params, saved: Saved, v: Tensor, /) -> Any:
        """J^T v."""
        raise NotImplementedError

    def jvp(self, p: Params, saved: Saved, u: Any, /) -> Any:
        """J u."""
        raise NotImplementedError

    def quotient(self, p: Params, saved: Saved, u: Any, e: Tensor, /) -> tuple[Any, Saved]:
        """(f(x) - f(x - e u)) / e for e >= 0 (J u for e = 0), and `saved` at x - e u. Here for a linear map that does
        not save its input."""
        return self.jvp(p, saved, u), saved

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        """The gradient of <v, y> for each parameter, in the order of p."""
        return ()

    def vjp_and_grads(self, p: Params, saved: Saved, v: Tensor) -> tuple[Any, Params]:
        """`vjp` and `grads` of one v."""
        return self.vjp(p, saved, v), self.grads(p, saved, v)

    def input(self, saved: Saved) -> Tensor:
        """Of a map with parameters: the input x, from `saved`."""
        return saved

    def operands(self, p: Params) -> Params:
        """The parameters that a rounded step is given: those that are factors of products in bfloat16 (`products`)."""
        return p

    def replay(self, p: Params, saved: Saved, x: Any) -> tuple[Tensor, Saved]:
        """`forward` for other parameters or another input, with the random numbers of the saved pass."""
        return self.forward(p, x)

    def without_quotient(self, saved: Saved) -> Saved:
        """`saved` without what `quotient` alone needs."""
        return saved

    def rows(self, x: Tensor, positions: int | None = None) -> Tensor:
        """Of a map that `is_linear`: its inputs a, row by row, such that the output is W a with all parameters side by
        side in W. positions: about how many places of a sample to take, evenly spread; None for all."""
        raise NotImplementedError

    def columns(self, saved: Saved, r: Tensor) -> tuple[Tensor, Tensor]:
        """Of a map that `is_linear`: all `rows` of its input, and those of residuals r."""
        raise NotImplementedError

    def kink_distance(self, saved: Saved, below: Tensor | None) -> Tensor | None:
        """Of a map that selects: how far each output may fall before it reaches a kink, where another input is
        selected (None: no limit), given the same for each input."""
        raise NotImplementedError

    def spread(self, saved: Saved, u: Tensor) -> Tensor:
        """Of a map that selects: the vjp of a u that is zero where its outputs do not depend on the input."""
        return self.vjp((), saved, u)

    def kept(self, saved: Saved) -> Any:
        """The new values of the module's buffers after a training pass; None: no change."""
        return None

    def checked(self, kept: Any) -> list[Tensor]:
        """Tensors that are finite if, and usually only if, all new values of buffers are."""
        return []

    def commit(self, kept: Any) -> None:
        """Writes them to the buffers, once the step is accepted."""


class Weighted(Map):
    """A module whose bias, if it has one, is the last of its parameters, in whatever order it holds them."""

    def __init__(self, module: nn.Module):
        super().__init__(module)
        self.names = tuple(sorted(self.names, key=lambda name: name == "bias"))

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether its weight and bias are parameters, and there is a weight if there is a bias."""
        bias = getattr(module, "bias", None)
        weight = getattr(module, "weight", bias)
        given = [each for each in (weight, bias) if each is not None]
        return all(isinstance(each, nn.Parameter) for each in given) and (weight is not None or bias is None)


def rounded(p: Params) -> Params:
    """Weight matrices in bfloat16; biases unchanged."""
    return [q.bfloat16() if q.ndim > 1 else q for q in p]


def shifted(x: Tensor, u: Tensor, e: Tensor) -> Tensor:
    """x - e u, in one pass."""
    return torch.addcmul(x, u, e, value=-1)  # the last may be in main memory while the others are on a GPU
