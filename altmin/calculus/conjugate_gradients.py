"""Conjugate gradients for many systems with one matrix."""

from collections.abc import Callable

import torch
from torch import Tensor


def conjugate_gradients(
    times: Callable[[Tensor], Tensor], b: Tensor, steps: int, ridge: Tensor | float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return x after `steps` steps from 0 towards x (M + ridge I) = b, a system for each row of b; and b - x M.

    times: x -> x M in a tensor of its own, of a symmetric M without negative eigenvalues. steps: at least one. A row
    that is solved stays as it is. The first step goes along b, with the best length for the row.

    >>> M, b = torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([[1.0, 0.0]])
    >>> [conjugate_gradients(lambda x: x @ M, b, steps)[0].tolist() for steps in (1, 2)]
    [[[0.5, 0.0]], [[0.6666666865348816, -0.3333333432674408]]]
    """
    x, left, direction, tiny = None, b, b, torch.finfo(b.dtype).tiny
    square = size = _squares(b)
    for k in range(steps):
        image = times(direction)
        length = square / ((direction * image).sum(1, keepdim=True) + ridge * size).clamp_min(tiny)
        x = length * direction if x is None else torch.addcmul(x, length, direction)
        left = image.mul_(-length).add_(left)
        if k < steps - 1:
            residual = left - ridge * x
            before, square = square, _squares(residual)
            direction = torch.addcmul(residual, square / before.clamp_min(tiny), direction)
            size = _squares(direction)
    assert x is not None
    return x, left


def _squares(b: Tensor) -> Tensor:
    """Return |b|^2 of every row."""
    return torch.linalg.vector_norm(b, dim=1, keepdim=True).square()
