"""What one module does to a small change: the local calculus on which everything else is built.

A `Map` is one module y = f(x; p) seen through five operations, none of which looks beyond the module:

    forward     y, and what the other operations need to remember (`saved`)
    pull        J^T v, from the output's side to the input's
    push        J u, from the input's side to the output's
    move        f(x + u) - f(x) without cancellation, and the memory of the new point
    grads       the gradients of <v, y> with respect to the parameters p

Linear layers, convolutions, normalisations, element-wise activations and pooling have closed forms; any other
module goes through `torch.func` on that module alone.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

Params = Sequence[Tensor]
Saved = Any


def vectorised() -> bool:
    """Whether this runs inside `torch.func`, as one of many members: tensors of theirs cannot be asked for numbers,
    written by `out=`, or handed to fused kernels."""
    return torch._C._functorch.maybe_current_level() is not None


class Map:
    """One module. `couples`: a sample's output depends on the other samples. `selects`: each output is one of the
    inputs, none chosen twice, or zero; see `Block.straight`. `affine`: the output is linear in the input and in the
    parameters. `regresses`: its parameters are one matrix, found by regression from `columns`."""

    selects = False
    couples = False
    affine = False
    regresses = False
    names: tuple[str, ...] = ()

    def __init__(self, module: nn.Module):
        self.module: Any = module
        self.names = tuple(name for name, _ in module.named_parameters())

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        raise NotImplementedError

    def pull(self, p: Params, saved: Saved, v: Tensor, /) -> Tensor:
        raise NotImplementedError

    def push(self, p: Params, saved: Saved, u: Tensor, /) -> Tensor:
        raise NotImplementedError

    def move(self, p: Params, saved: Saved, u: Tensor) -> tuple[Tensor, Saved]:
        return self.push(p, saved, u), saved

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        return ()

    def replay(self, p: Params, saved: Saved, x: Tensor) -> tuple[Tensor, Saved]:
        """`forward` for other parameters or another input, with the random numbers of the saved pass."""
        return self.forward(p, x)

    def columns(self, saved: Saved, r: Tensor) -> tuple[Tensor, Tensor]:
        """Of a map that regresses: inputs a and residuals r, row by row, such that the output is W a with all
        parameters side by side in W."""
        raise NotImplementedError

    def room(self, saved: Saved, below: Tensor | None) -> Tensor | None:
        """Of a map that selects: how far each output may fall before another choice is made (None: any way), given the
        same of each input."""
        raise NotImplementedError

    def spread(self, saved: Saved, u: Tensor) -> Tensor:
        """Of a map that selects: `pull` of a move that has passed the map, free to use up the saved memory."""
        return self.pull((), saved, u)

    def commit(self, saved: Saved) -> None:
        """Writes what a training pass leaves in the module's buffers, once the step is known to be good."""
