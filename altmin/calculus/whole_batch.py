"""Modules that go through autograd, on a rank's rows of a mini-batch: what mixes samples sees those of all ranks.

Within `whole_batch(context)` torch's batch norm takes its means over the rows of all ranks, and dropout, rand_like and
randn_like draw for all rows and take this rank's, as one process with the whole batch would. Any other random number is
refused. What mixes samples in ways of its own, such as x - x.mean(0), would do so within its rank's rows; runners
refuse such a model (`demand_rowwise`).
"""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from altmin.calculus.context import Context
from altmin.calculus.normalisation import moments

Function = Callable[..., Any]


class Total(torch.autograd.Function):
    """The sum of a tensor over ranks. All ranks depend on it, so its gradient is again a sum over ranks."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, context: Context) -> Tensor:
        ctx.context = context
        return context.sum(t)[0].clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return Total.apply(grad.contiguous(), ctx.context), None


def _batch_norm(function: Function, context: Context) -> Function:
    """Return `torch.nn.functional.batch_norm` over the rows of all ranks."""

    def call(
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if not training:
            return function(input, running_mean, running_var, weight, bias, False, momentum, eps)
        mean, var = moments(input, lambda *sums: Total.apply(torch.stack(sums), context), context)
        if running_mean is not None and running_var is not None:
            with torch.no_grad():
                running_mean.mul_(1 - momentum).add_(mean.to(running_mean.dtype), alpha=momentum)
                count = context.count(input.numel()) // input.shape[1]
                unbiased = (var * (count / (count - 1))).to(running_var.dtype)
                running_var.mul_(1 - momentum).add_(unbiased, alpha=momentum)
        shape = [1, -1, *[1] * (input.ndim - 2)]
        out = ((input.double() - mean.view(shape)) * (var + eps).rsqrt().view(shape)).to(input.dtype)
        out = out if weight is None else out * weight.view(shape)
        return out if bias is None else out + bias.view(shape)

    return call


def _drawn(like: Tensor, context: Context, draw: Callable[[Tensor], Tensor]) -> Tensor:
    """Return this rank's rows of draw(t), t a tensor of ones like another on all ranks' rows. Torch draws in the order
    in which a tensor lies in memory: `Undivided` unless its samples lie one after the other."""
    strides = torch.empty_like(like, device="meta").stride()
    order = sorted(range(1, like.ndim), key=lambda d: -strides[d])
    if len(like) > 1 and any(strides[d] > strides[0] for d in order if like.shape[d] > 1):
        raise Undivided(
            "random numbers of a tensor whose samples do not lie one after the other in memory, as in the output of "
            "attention with batch_first=True, would differ from those of one process; call contiguous() before"
        )
    back = [0, *(1 + order.index(d) for d in range(1, like.ndim))]
    shape = [like.shape[0], *(like.shape[d] for d in order)]
    return context.draw(shape, lambda shape: draw(like.new_ones(shape).permute(back)))


def _dropout(function: Function, context: Context) -> Function:
    """Return one of torch's functions that drop entries. Its mask is its output for ones."""

    def call(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return input
        like = input if function is F.dropout else input.contiguous()  # the others drop whole channels, in their order
        with torch.no_grad():
            mask = _drawn(like, context, lambda ones: function(ones, p, True))
        return input.mul_(mask) if inplace else input * mask

    return call


def _like(function: Function, context: Context) -> Function:
    """Return a function that draws numbers in the shape of a tensor."""

    def call(input: Tensor, **options: Any) -> Tensor:
        return _drawn(input, context, lambda ones: function(ones, **options))

    return call


REPLACED: dict[Any, Callable[[Function, Context], Function]] = {
    F.batch_norm: _batch_norm,
    **dict.fromkeys((F.dropout, F.dropout1d, F.dropout2d, F.dropout3d), _dropout),
    **dict.fromkeys((torch.rand_like, torch.randn_like), _like),
}


class Undivided(ValueError):
    """Error where ranks with some of the rows each could not compute what one process with all rows does."""


class Randomness:
    """The states of all random numbers that a forward may draw: torch's, Python's and NumPy's."""

    def __init__(self) -> None:
        self.torch, self.python, self.numpy = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
        self.cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None

    def changed(self) -> bool:
        now = Randomness()
        gpu = self.cuda is not None and now.cuda is not None and not torch.equal(self.cuda, now.cuda)
        numbers = [(a.python, *a.numpy[2:], a.numpy[1].tobytes()) for a in (self, now)]  # type: ignore[index]
        return gpu or not torch.equal(self.torch, now.torch) or numbers[0] != numbers[1]

    def restore(self) -> None:
        torch.set_rng_state(self.torch)
        random.setstate(self.python)
        np.random.set_state(self.numpy)  # noqa: NPY002
        if self.cuda is not None:
            torch.cuda.set_rng_state(self.cuda)


class _WholeBatch(TorchFunctionMode):
    """Mode that raises `Undivided` if functions other than those in `REPLACED` draw random numbers."""

    def __init__(self, context: Context):
        super().__init__()
        self.context = context

    def __enter__(self) -> "_WholeBatch":
        self.before = self.now = Randomness()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if error[0] is None:
            self.demand_undrawn()

    def demand_undrawn(self) -> None:
        if self.now.changed():
            self.before.restore()
            raise Undivided(
                "a module draws random numbers by itself, and ranks would draw others than one process; use "
                "nn.Dropout, torch.rand_like or torch.randn_like, or train in one process (nothing was changed)"
            )

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in REPLACED:
            return func(*args, **(kwargs or {}))
        self.demand_undrawn()
        result = REPLACED[func](func, self.context)(*args, **(kwargs or {}))
        self.now = Randomness()
        return result


def whole_batch(context: Context) -> AbstractContextManager[Any]:
    """Let torch's functions that mix samples see the whole batch inside the context; nothing changes where this process
    has all of it."""
    return nullcontext() if context.shard is None else _WholeBatch(context)
