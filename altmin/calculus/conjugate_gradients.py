"""Conjugate gradients for many systems with one matrix."""

from collections.abc import Callable

import torch
from torch import Tensor


def conjugate_gradients(times: Callable[[Tensor], Tensor], b: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """x after so many steps from 0 towards x M = b, each row of b a system of its own, and what is left, b - x M.

    times: x -> x M, of a symmetric M without negative eigenvalues. A row that is solved stays as it is. The first step
    goes along b as far as is best for the row.

    >>> M, b = torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([[1.0, 0.0]])
    >>> [conjugate_gradients(lambda x: x @ M, b, steps)[0].tolist() for steps in (1, 2)]
    [[[0.5, 0.0]], [[0.6666666865348816, -0.3333333432674408]]]
    """
    x, left, direction = torch.zeros_like(b), b, b
    square, tiny = b.square().sum(1, keepdim=True), torch.finfo(b.dtype).tiny
    for k in range(steps):
        image = times(direction)
        length = square / (direction * image).sum(1, keepdim=True).clamp_min(tiny)
        x, left = torch.addcmul(x, length, direction), torch.addcmul(left, length, image, value=-1)
        if k < steps - 1:
            before, square = square, left.square().sum(1, keepdim=True)
            direction = torch.addcmul(left, square / before.clamp_min(tiny), direction)
    return x, left
