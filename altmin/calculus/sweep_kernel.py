"""The kernel of `sweep`. A program has some samples and goes through all steps."""

import torch
import triton
import triton.language as tl
from torch import Tensor

SAMPLES = 16


def launch(e: Tensor, F: Tensor, W: Tensor, k: Tensor | None, c: Tensor | None) -> Tensor:
    """Return d, or d and a with c, of `sweep`, along a first dimension; all in float32."""
    e, F, W = e.contiguous(), F.contiguous(), W.contiguous()
    k, c = (None if t is None else t.contiguous() for t in (k, c))
    steps, samples, codes, features = F.shape
    result = e.new_empty(1 if c is None else 2, *e.shape)
    size, warps = max(16, triton.next_power_of_2(features)), 4 if features <= 32 else 8
    args = e, F, W, e if k is None else k, e if c is None else c, result, result[-1], steps, samples, features
    with torch.cuda.device_of(e):
        _sweep[(triton.cdiv(samples, SAMPLES),)](
            *args, codes, size, SAMPLES, k is not None, c is not None, num_warps=warps
        )
    return result


@triton.jit
def _sweep(
    e,
    F,
    W,
    k,
    c,
    d_out,
    a_out,
    steps,
    samples,
    features,
    CODES: tl.constexpr,
    SIZE: tl.constexpr,
    SAMPLES: tl.constexpr,
    KEEPS: tl.constexpr,
    CELL: tl.constexpr,
):
    rows, columns = tl.program_id(0) * SAMPLES + tl.arange(0, SAMPLES), tl.arange(0, SIZE)
    inside = (rows < samples)[:, None] & (columns < features)[None, :]
    place = rows[:, None] * features + columns[None, :]
    place_F = rows[:, None] * (CODES * features) + columns[None, :]
    place_W = columns[:, None] * features + columns[None, :]
    inside_W = (columns < features)[:, None] & (columns < features)[None, :]
    d = tl.zeros([SAMPLES, SIZE], dtype=tl.float32)
    a = tl.zeros([SAMPLES, SIZE], dtype=tl.float32)
    width = samples * features
    for i in range(0, steps):
        here = (steps - 1 - i).to(tl.int64) * width
        after = here + width
        known = inside & (i > 0)
        new = tl.load(e + here + place, mask=inside, other=0.0)
        for j in tl.static_range(CODES):
            factor = tl.load(F + after * CODES + j * features + place_F, mask=known, other=0.0)
            block = tl.load(W + j * features * features + place_W, mask=inside_W, other=0.0)
            if CELL and j < CODES - 1:
                g = a * factor
            else:
                g = d * factor
            new += tl.dot(g, block, input_precision="tf32x3")
        if KEEPS:
            keep = tl.load(k + after + place, mask=known, other=0.0)
            if CELL:
                slope = tl.load(c + here + place, mask=inside, other=0.0)
                a = keep * a + slope * new
                tl.store(a_out + here + place, a, mask=inside)
            else:
                new += keep * d
        d = new
        tl.store(d_out + here + place, d, mask=inside)
