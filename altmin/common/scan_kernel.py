"""The kernel of `scan`. A program has some features of a sample; it goes through time in chunks, inside which the steps
are combined in a tree."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK, FEATURES = 32, 64


def launch(a: Tensor, b: Tensor, dim: int, reverse: bool) -> Tensor:
    """Compute h_t = a_t h_{t-1} + b_t along a dimension, h_0 = 0; reverse: from the last step to the first. Sums are in
    float32 at least."""
    a, b = a.contiguous(), b.contiguous()
    h = torch.empty_like(b)
    outer, steps, inner = math.prod(b.shape[:dim]), b.shape[dim], math.prod(b.shape[dim + 1 :])
    wide = tl.float64 if b.dtype == torch.float64 else tl.float32
    with torch.cuda.device_of(b):
        _scan[(outer, triton.cdiv(inner, FEATURES))](a, b, h, steps, inner, CHUNK, FEATURES, reverse, wide)
    return h


@triton.jit
def _combined(a, b, later_a, later_b):
    return later_a * a, later_a * b + later_b


@triton.jit
def _scan(
    a,
    b,
    h,
    steps,
    inner,
    CHUNK: tl.constexpr,
    FEATURES: tl.constexpr,
    REVERSE: tl.constexpr,
    WIDE: tl.constexpr,
):
    rows = tl.arange(0, CHUNK)
    features = tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    start_of_sample = tl.program_id(0).to(tl.int64) * steps * inner
    state = tl.zeros([FEATURES], dtype=WIDE)
    for start in range(0, steps, CHUNK):
        t = start + rows
        at = steps - 1 - t if REVERSE else t
        inside = (t < steps)[:, None] & (features < inner)[None, :]
        place = start_of_sample + at.to(tl.int64)[:, None] * inner + features[None, :]
        x = tl.load(a + place, mask=inside, other=0.0).to(WIDE)
        y = tl.load(b + place, mask=inside, other=0.0).to(WIDE)
        x, y = tl.associative_scan((x, y), 0, _combined)
        y += x * state[None, :]
        tl.store(h + place, y, mask=inside)
        state = tl.sum(tl.where(rows[:, None] == CHUNK - 1, y, 0.0), 0)
