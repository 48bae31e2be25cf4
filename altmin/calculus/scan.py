"""Linear recurrences in time, many steps at once.

The product of matrices is associative, so that a recurrence can be cut into chunks: each is swept from a zero start,
all chunks together; how a chunk maps what enters it to what leaves it is a matrix for each sample; and what enters each
chunk then follows from one chunk to the next. With T steps in chunks of C that is 2 C + T / C operations one after the
other instead of T, for d times as many products, d the number of features.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from altmin.calculus.products import matmul


def backward_scan(p: Tensor, s: Tensor, W: Tensor, chunk: int | None = None) -> Tensor:
    """g_t = s_t * (p_t + g_{t+1} W), t = T, ..., 1, with g_{T+1} = 0. p, s: (steps, samples, features). W: (features,
    features). chunk: steps in a chunk; None for as few operations one after the other as can be.

    >>> p, s, W = torch.ones(3, 1, 1), torch.full((3, 1, 1), 0.5), torch.ones(1, 1)
    >>> backward_scan(p, s, W, chunk=2).flatten().tolist()
    [0.875, 0.75, 0.5]
    """
    steps, samples, d = p.shape
    chunk = chunk or max(1, round(math.sqrt(steps / 2)))
    count = -(-steps // chunk)
    padding = (0, 0, 0, 0, 0, count * chunk - steps)  # steps after the last, at which g is 0
    p, s = (F.pad(t, padding).view(count, chunk, samples, d) for t in (p, s))
    enters = p.new_zeros(samples, d)
    if count > 1:
        first, H = _from_zero(p, s, W)
        starts = [enters]
        for k in range(count - 1, 0, -1):
            starts.append(first[k] + matmul(starts[-1].unsqueeze(1), H[k]).squeeze(1))
        enters = torch.stack(starts[::-1])
    found, g = [], enters
    for j in range(chunk - 1, -1, -1):
        g = s[:, j] * (p[:, j] + matmul(g, W))
        found.append(g)
    return torch.stack(found[::-1], 1).view(count * chunk, samples, d)[:steps]


def _from_zero(p: Tensor, s: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
    """Of every chunk g at its first step if nothing enters it, (chunks, samples, features), and the matrix that maps
    what enters to what it adds there, (chunks, samples, features, features)."""
    count, chunk, samples, d = p.shape
    g = p.new_zeros(count, samples, d)
    H = torch.eye(d, dtype=p.dtype, device=p.device).expand(count, samples, d, d)
    for j in range(chunk - 1, -1, -1):
        g = s[:, j] * (p[:, j] + matmul(g, W))
        H = s[:, j].unsqueeze(2) * matmul(H, W)
    return g, H
