"""Modules that go through autograd, on a rank's rows of a mini-batch: what mixes samples sees those of all ranks.

Within `whole_batch(context)` torch's batch norm takes its means over the rows of all ranks, and dropout and other
random functions draw for all rows and take this rank's, as one process with the whole batch would. A module that mixes
samples in ways of its own, such as x - x.mean(0), does so within its rank's rows.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

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
    """`torch.nn.functional.batch_norm` over the rows of all ranks."""

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


def _dropout(function: Function, context: Context) -> Function:
    """One of torch's functions that drop entries. Its mask is its output for ones."""

    def call(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return input
        with torch.no_grad():
            mask = context.draw(input.shape, lambda shape: function(input.new_ones(shape), p, True))
        return input.mul_(mask) if inplace else input * mask

    return call


def _like(function: Function, context: Context) -> Function:
    """A function that draws numbers in the shape of a tensor."""

    def call(input: Tensor, **options: Any) -> Tensor:
        return context.draw(
            input.shape, lambda shape: function(input.new_empty(1).expand(shape), **options)
        ).contiguous()

    return call


def _undropped(place: int, function: Function, context: Context) -> Function:
    """A function of attention, whose argument in this place is the probability to drop an entry inside it: ValueError
    unless it is 0, or the model is not in training."""

    def call(*args: Any, **options: Any) -> Any:
        dropped = options.get("dropout_p", args[place] if len(args) > place else 0.0)
        if dropped and options.get("training", True):
            raise ValueError(
                "attention with dropout inside draws its numbers by itself, and ranks cannot share them; give it "
                f"dropout=0.0, here it is {dropped}"
            )
        return function(*args, **options)

    return call


REPLACED: dict[Any, Callable[[Function, Context], Function]] = {
    F.batch_norm: _batch_norm,
    F.scaled_dot_product_attention: partial(_undropped, 4),
    F.multi_head_attention_forward: partial(_undropped, 10),
    **dict.fromkeys((F.dropout, F.dropout1d, F.dropout2d, F.dropout3d), _dropout),
    **dict.fromkeys((torch.rand_like, torch.randn_like), _like),
}


class _WholeBatch(TorchFunctionMode):
    def __init__(self, context: Context):
        super().__init__()
        self.context = context

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = REPLACED[func](func, self.context) if func in REPLACED else func
        return call(*args, **(kwargs or {}))


def whole_batch(context: Context) -> AbstractContextManager[Any]:
    """Within, torch's functions that mix samples see the whole batch; nothing changes where this process has all of
    it."""
    return nullcontext() if context.shard is None else _WholeBatch(context)
