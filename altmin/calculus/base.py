"""The local calculus of one module.

A `Map` is one module y = f(x; p) with six operations, each local to the module:

    forward     y, and what the other operations need to know of x (`saved`)
    vjp         J^T v, from the output's side to the input's
    jvp         J u, from the input's side to the output's
    grads       the gradients of <v, y> with respect to the parameters p
    replay      forward at another input, with the random numbers of the saved pass
    rows        of a layer: its inputs a, row by row, on which its matrices of weights act

Linear layers, convolutions, normalisations, element-wise activations and pooling have closed forms; any other module
goes through autograd on that module alone.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from altmin.calculus.context import LOCAL, Context

Params = Sequence[Tensor]
Saved = Any


class Map:
    """One module.

    mixes_samples: a sample's output depends on the other samples. selects: each output is one of the inputs, none
    chosen twice, or zero. affine: the output is linear in the input and in the parameters. is_linear: its parameters
    are one matrix, found by regression from `columns`. matrices: the numbers of those parameters that are matrices
    (outputs, ...) acting on known inputs, or one for each of several groups. uses_autograd: it has no closed form and
    goes through autograd. several: x, u and what `vjp` returns are lists, with an entry for each input (see
    `MultiInput`). names: of the parameters, in the order of p.

    p: the parameters, passed to every operation. u and v: of the input's and the output's shape. No
    operation but `commit` changes the module or its arguments.
    """

    selects = False
    mixes_samples = False
    affine = False
    is_linear = False
    matrices: Sequence[int] = ()
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
        """Return y, and what the other operations need of x and of the context."""
        raise NotImplementedError

    def vjp(self, p: Params, saved: Saved, v: Tensor, /) -> Any:
        """Return J^T v."""
        raise NotImplementedError

    def jvp(self, p: Params, saved: Saved, u: Any, /) -> Any:
        """Return J u."""
        raise NotImplementedError

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        """Return the gradient of <v, y> for each parameter, in the order of p."""
        return ()

    def vjp_and_grads(self, p: Params, saved: Saved, v: Tensor) -> tuple[Any, Params]:
        """Return `vjp` and `grads` of one v."""
        return self.vjp(p, saved, v), self.grads(p, saved, v)

    def input(self, saved: Saved) -> Tensor:
        """Return the input x of a map with parameters, from `saved`."""
        return saved

    def replay(self, p: Params, saved: Saved, x: Any) -> tuple[Tensor, Saved]:
        """Return `forward` for other parameters or another input, with the random numbers of the saved pass."""
        return self.forward(p, x)

    def functional(self) -> "Map":
        """Return the map in operations that `torch.func` and torch.compile can transform: here itself."""
        return self

    def inputs(self, saved: Saved) -> Sequence[Tensor]:
        """Return the inputs (samples, ...) of each of its `matrices`."""
        return ()

    def places(self, x: Tensor) -> int:
        """Return the number of `rows` of each sample of inputs x."""
        raise NotImplementedError

    def rows(self, x: Tensor, positions: int | None = None) -> Tensor:
        """The inputs of a matrix W row by row, such that the outputs are W a; (groups, rows, inputs) with several
        groups. positions: about how many places of a sample to take, evenly spread; None for all."""
        raise NotImplementedError

    def columns(self, saved: Saved, r: Tensor) -> tuple[Tensor, Tensor]:
        """Return all `rows` of the input of a map that `is_linear`, with a 1 appended for the bias if there is one, and
        those of residuals r."""
        raise NotImplementedError

    def kept(self, saved: Saved) -> Any:
        """Return the new values of the module's buffers after a training pass; None: no change."""
        return None

    def checked(self, values: Any) -> list[Tensor]:
        """Return tensors that are finite if, and usually only if, all new values of buffers are."""
        return []

    def commit(self, values: Any) -> None:
        """Write new values to the buffers, once the step is accepted."""


class Weighted(Map):
    """A module whose bias, if it has one, is the last of its parameters, in whatever order it holds them."""

    def __init__(self, module: nn.Module):
        super().__init__(module)
        self.names = tuple(sorted(self.names, key=lambda name: name == "bias"))

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Return whether its weight and bias are parameters, and there is a weight if there is a bias."""
        bias = getattr(module, "bias", None)
        weight = getattr(module, "weight", bias)
        params = [p for p in (weight, bias) if p is not None]
        return all(isinstance(p, nn.Parameter) for p in params) and (weight is not None or bias is None)
