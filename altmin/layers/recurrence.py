"""The recurrence of a layer by torch's own kernels, also inside `torch.func`."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

KERNELS: dict[str, Any] = {"RNN_TANH": torch.rnn_tanh, "GRU": torch.gru, "LSTM": torch.lstm}
"""Torch's kernels for all steps of one layer, by what a recurrent module of torch calls its mode."""


def recurrence(mode: str, x: Tensor, U: Tensor, W: Tensor, b: Tensor, b2: Tensor, *, train: bool = False) -> Tensor:
    """h_1..h_T of a recurrent layer by torch's own kernel, for x (steps, samples, features) and h_0 = 0; with the mode
    RNN_TANH h_t = tanh(U x_t + b + W h_{t-1} + b2). train: whether it is to be differentiated."""
    zero = x.new_zeros(1, x.shape[1], W.shape[1])
    start = (zero, zero) if mode == "LSTM" else zero
    h: Tensor = KERNELS[mode](x, start, [U, W, b, b2], True, 1, 0.0, train, False, False)[0]
    return h


@torch.library.custom_op("altmin::recurrence", mutates_args=())
def opaque_recurrence(mode: str, x: Tensor, U: Tensor, W: Tensor, b: Tensor, b2: Tensor) -> Tensor:
    """`recurrence` without a derivative, which `torch.compile` and `torch.func.vmap` take as one operation."""
    return recurrence(mode, x, U, W, b, b2)


@opaque_recurrence.register_fake
def _(mode: str, x: Tensor, U: Tensor, W: Tensor, b: Tensor, b2: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:2], W.shape[1])


@opaque_recurrence.register_vmap
def _(info: Any, dims: Any, mode: str, *tensors: Tensor) -> tuple[Tensor, int]:
    return Recurrences.vmap(info, dims, mode, *tensors)


class Recurrences(torch.autograd.Function):
    """`recurrence` inside `torch.func`, which has no rule for the kernel: the members of an ensemble one by one."""

    @staticmethod
    def forward(mode: str, *tensors: Tensor) -> Tensor:
        return recurrence(mode, *tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.mode = inputs[0]
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        return None, *_Backward.apply(ctx.mode, *ctx.saved_tensors, v)

    @staticmethod
    def vmap(info: Any, dims: Any, mode: str, *tensors: Tensor) -> tuple[Tensor, int]:
        members = _members(tensors, dims[1:], info.batch_size)
        return torch.stack([recurrence(mode, *member) for member in members]), 0


class _Backward(torch.autograd.Function):
    """J^T v for the input and every weight, by the kernel's own derivative."""

    @staticmethod
    def forward(mode: str, *tensors: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in tensors[:-1]]
            return torch.autograd.grad(recurrence(mode, *leaves, train=True), leaves, tensors[-1])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, dims: Any, mode: str, *tensors: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        gradients = [_Backward.forward(mode, *member) for member in _members(tensors, dims[1:], info.batch_size)]
        return tuple(torch.stack(grads) for grads in zip(*gradients, strict=True)), (0,) * len(gradients[0])


def _members(tensors: Sequence[Tensor], dims: Sequence[int | None], n: int) -> list[list[Tensor]]:
    """The arguments of each member."""
    pairs = list(zip(tensors, dims, strict=True))
    return [[t if dim is None else t.select(dim, i) for t, dim in pairs] for i in range(n)]
