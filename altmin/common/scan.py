"""Linear recurrences that are elementwise, all steps at once."""

import torch
from torch import Tensor


def scan(a: Tensor, b: Tensor, dim: int = 1) -> Tensor:
    """h_t = a_t h_{t-1} + b_t along a dimension, with h_0 = 0: on a GPU in about log2(T) rounds over all steps, on a
    CPU one step after the other, which is T operations instead of T log2(T).

    >>> scan(torch.full((1, 4), 0.5), torch.ones(1, 4)).tolist()
    [[1.0, 1.5, 1.75, 1.875]]
    """
    return in_rounds(a, b, dim) if b.is_cuda else one_by_one(a, b, dim)


def one_by_one(a: Tensor, b: Tensor, dim: int) -> Tensor:
    found: list[Tensor] = []
    for a_t, b_t in zip(a.unbind(dim), b.unbind(dim), strict=True):
        found.append(torch.addcmul(b_t, a_t, found[-1]) if found else b_t)
    return torch.stack(found, dim)


def in_rounds(a: Tensor, b: Tensor, dim: int) -> Tensor:
    """In each round every step takes in what lies twice as far back."""
    steps, reach = b.shape[dim], 1
    while reach < steps:
        (a0, a1), (b0, b1) = (t.split([reach, steps - reach], dim) for t in (a, b))
        b = torch.cat([b0, torch.addcmul(b1, a1, b.narrow(dim, 0, steps - reach))], dim)
        a = torch.cat([a0, a1 * a.narrow(dim, 0, steps - reach)], dim)
        reach *= 2
    return b
