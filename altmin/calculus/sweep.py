"""The sweep over the codes of a recurrent layer, from the last step to the first.

With W_j the weights by which h_{t-1} enters code j of step t, and F_{j,t} the derivative of h_t by that code, the total
gradients at h_t are

    d_t = e_t + k_{t+1} d_{t+1} + sum_j (F_{j,t+1} d_{t+1}) W_j,

k the derivative of h_{t+1} by h_t with the codes of step t + 1 given. If a layer has a cell s_t, and h_t is a function
of it and of the last code, all codes but the last belong to the cell, with total gradients a_t there:

    d_t = e_t + sum_{j < G} (F_{j,t+1} a_{t+1}) W_j + (F_{G,t+1} d_{t+1}) W_G,        a_t = k_{t+1} a_{t+1} + c_t d_t,

c_t the derivative of h_t by s_t.
"""

from typing import Any

import torch
from torch import Tensor

from altmin.calculus import products
from altmin.common.scan import HAS_KERNEL

WIDEST = {True: 128, False: 64}
"""Hidden units up to which the kernel has room, with one code a unit and with several."""


def sweep(e: Tensor, F: Tensor, W: Tensor, k: Tensor | None = None, c: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return d and, with c, a; without, d twice. e, k, c: (steps, samples, features). F: (steps, samples, codes,
    features). W: (codes features, features). On a GPU one kernel for all steps, if there is room for W and triton is
    installed."""
    if HAS_KERNEL and e.is_cuda and e.dtype == torch.float32 and e.shape[-1] <= WIDEST[F.shape[2] == 1]:
        result = in_one_kernel(e, F, W.to(e.dtype), k, c)
        return result[0], result[-1]
    return one_by_one(e, F, W, k, c)


def one_by_one(e: Tensor, F: Tensor, W: Tensor, k: Tensor | None, c: Tensor | None) -> tuple[Tensor, Tensor]:
    d, a = [e[-1]], [e[-1] if c is None else c[-1] * e[-1]]
    for t in range(len(e) - 2, -1, -1):
        if c is None:
            start = e[t] if k is None else torch.addcmul(e[t], k[t + 1], d[-1])
            g = F[t + 1] * d[-1].unsqueeze(-2)
        else:
            start = e[t]
            g = torch.cat([F[t + 1, :, :-1] * a[-1].unsqueeze(-2), (F[t + 1, :, -1] * d[-1]).unsqueeze(-2)], -2)
        d.append(start + products.matmul(g.flatten(-2), W))
        if c is not None and k is not None:
            a.append(torch.addcmul(k[t + 1] * a[-1], c[t], d[-1]))
    whole = torch.stack(d[::-1])
    return whole, whole if c is None else torch.stack(a[::-1])


@torch.library.custom_op("altmin::sweep", mutates_args=())
def in_one_kernel(e: Tensor, F: Tensor, W: Tensor, k: Tensor | None, c: Tensor | None) -> Tensor:
    """Return d, or d and a, by one kernel. An operation of its own, so that compiled functions can have it."""
    from altmin.calculus.sweep_kernel import launch  # needs triton

    return launch(e, F, W, k, c)


@in_one_kernel.register_fake
def _(e: Tensor, F: Tensor, W: Tensor, k: Tensor | None, c: Tensor | None) -> Tensor:
    return torch.empty(1 if c is None else 2, *e.shape, dtype=e.dtype, device=e.device)


@in_one_kernel.register_vmap
def _(info: Any, dims: Any, *args: Tensor | None) -> tuple[Tensor, int]:
    pairs = list(zip(args, dims, strict=True))
    members = [[t if d is None or t is None else t.select(d, i) for t, d in pairs] for i in range(info.batch_size)]
    return torch.stack([in_one_kernel(*member) for member in members]), 0
