"""Linear recurrences that are elementwise, all steps at once."""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

HAS_KERNEL = find_spec("triton") is not None


def scan(a: Tensor, b: Tensor, dim: int = 1, reverse: bool = False) -> Tensor:
    """Compute h_t = a_t h_{t-1} + b_t along a dimension, h_0 = 0; reverse: h_t = a_t h_{t+1} + b_t, from the last step
    to the first. a and b have one shape. On a GPU one kernel, which has no derivative, or without triton about log2(T)
    rounds over all steps; on a CPU one step after the other, which is T operations instead of T log2(T).

    >>> scan(torch.full((1, 4), 0.5), torch.ones(1, 4)).tolist()
    [[1.0, 1.5, 1.75, 1.875]]
    """
    if not b.is_cuda:
        return one_by_one(a, b, dim, reverse)
    h: Tensor = (in_one_kernel if HAS_KERNEL else in_rounds)(a, b, dim, reverse)
    return h


def differentiable_scan(a: Tensor, b: Tensor, dim: int = 1, reverse: bool = False) -> Tensor:
    """Compute `scan` with derivatives."""
    if not b.is_cuda:
        return one_by_one(a, b, dim, reverse)
    if not HAS_KERNEL or torch.compiler.is_compiling() or forward_ad._current_level >= 0:  # what `Scan` cannot do
        return in_rounds(a, b, dim, reverse)
    h: Tensor = Scan.apply(a, b, dim, reverse)
    return h


def one_by_one(a: Tensor, b: Tensor, dim: int, reverse: bool = False) -> Tensor:
    states: list[Tensor] = []
    steps = list(zip(a.unbind(dim), b.unbind(dim), strict=True))
    for a_t, b_t in reversed(steps) if reverse else steps:
        states.append(torch.addcmul(b_t, a_t, states[-1]) if states else b_t)
    return torch.stack(states[::-1] if reverse else states, dim)


def in_rounds(a: Tensor, b: Tensor, dim: int, reverse: bool = False) -> Tensor:
    """Compute `scan` by doubling: in each round a step combines twice as many steps before it."""
    if reverse:
        return in_rounds(a.flip(dim), b.flip(dim), dim).flip(dim)
    steps, reach = b.shape[dim], 1
    while reach < steps:
        (a0, a1), (b0, b1) = (t.split([reach, steps - reach], dim) for t in (a, b))
        b = torch.cat([b0, torch.addcmul(b1, a1, b.narrow(dim, 0, steps - reach))], dim)
        a = torch.cat([a0, a1 * a.narrow(dim, 0, steps - reach)], dim)
        reach *= 2
    return b


@torch.library.custom_op("altmin::scan", mutates_args=())
def in_one_kernel(a: Tensor, b: Tensor, dim: int, reverse: bool = False) -> Tensor:
    """Compute `scan` by one kernel, without a derivative: a custom operation, so that compiled functions can use it."""
    from altmin.common.scan_kernel import launch  # needs triton

    return launch(a, b, dim, reverse)


@in_one_kernel.register_fake
def _(a: Tensor, b: Tensor, dim: int, reverse: bool = False) -> Tensor:
    return torch.empty(b.shape, dtype=b.dtype, device=b.device)


@in_one_kernel.register_vmap
def _(info: Any, dims: Any, a: Tensor, b: Tensor, dim: int, reverse: bool = False) -> tuple[Tensor, int]:
    pairs = zip((a, b), dims[:2], strict=True)
    a, b = (t.expand(info.batch_size, *t.shape) if d is None else t.movedim(d, 0) for t, d in pairs)
    h: Tensor = in_one_kernel(a, b, dim + 1, reverse)
    return h, 0


class Scan(torch.autograd.Function):
    """Autograd function of `in_one_kernel`, in reverse mode."""

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor, dim: int, reverse: bool) -> Tensor:
        h: Tensor = in_one_kernel(a, b, dim, reverse)
        return h

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        a, _, ctx.dim, ctx.reverse = inputs
        ctx.save_for_backward(a, output)

    @staticmethod
    def backward(ctx: Any, *v: Tensor) -> Any:
        """Return the gradients g_t h_{t-1} at a_t and g_t at b_t, with g_t = v_t + a_{t+1} g_{t+1}."""
        (a, h), dim, reverse = ctx.saved_tensors, ctx.dim, ctx.reverse
        g = differentiable_scan(previous(a, dim, not reverse), v[0], dim, not reverse)
        return g * previous(h, dim, reverse), g, None, None


def previous(t: Tensor, dim: int, reverse: bool = False) -> Tensor:
    """Return t of the step before at every step, and 0 at the first; reverse: of the step after, and 0 at the last."""
    rest = t.narrow(dim, int(reverse), t.shape[dim] - 1)
    zero = torch.zeros_like(t.narrow(dim, 0, 1))
    return torch.cat([rest, zero] if reverse else [zero, rest], dim)
