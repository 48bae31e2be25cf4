"""Embeddings: rows of a table, chosen by integers."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from altmin.calculus.base import Map, Params, Saved
from altmin.calculus.context import LOCAL, Context

INTEGERS = (torch.int64, torch.int32)


class Embedding(Map):
    """y = W[x]: for each of the integers x its row of the table W.

    Integers do not move, so J = 0. The gradient of <v, y> adds up the v of all places with the same integer; the row
    `padding_idx` has none.

    IndexError or RuntimeError, as torch raises them, for an integer out of range; on a GPU, where that would end the
    process, its row is NaN instead.
    """

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        known = _in_range(x, p[0])
        return _marked(F.embedding(known, p[0]), (x == known).unsqueeze(-1) if known is not x else None), known

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return v.new_zeros(saved.shape)

    def jvp(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return p[0].new_zeros(*saved.shape, p[0].shape[1])

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        table, pad = p[0], self.module.padding_idx
        if not self.module.weight.requires_grad:  # it is not needed, and may be large
            return (v.new_zeros(()).expand(table.shape),)
        return (torch.ops.aten.embedding_dense_backward(v, saved, len(table), -1 if pad is None else pad, False),)

    def misfit(self, x: Tensor) -> str:
        rows = self.module.num_embeddings
        known = x.dtype in INTEGERS and bool(((x >= 0) & (x < rows)).all())
        return "" if known else f"{type(self.module).__name__} takes int64 or int32 from 0 to {rows - 1}"


class EmbeddingBag(Embedding):
    """y_s = sum_t W[x_st], or the mean over t, of integers x (samples, time). Those that are `padding_idx` do not
    count."""

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        if x.ndim != 2:
            raise ValueError(
                f"EmbeddingBag takes one row of integers for each sample, (samples, integers), given shape "
                f"{tuple(x.shape)}; bags of different lengths are filled up with padding_idx"
            )
        m, known = self.module, _in_range(x, p[0])
        if False:  # torch has no batching rule for its kernel
            y = (F.embedding(known, p[0]) * self._counts(known).to(p[0].dtype).unsqueeze(-1)).sum(1)
            y = y if m.mode == "sum" else y / self._sizes(known)
        else:
            y = F.embedding_bag(known, p[0], mode=m.mode, padding_idx=m.padding_idx)
        return _marked(y, (x == known).all(1, keepdim=True) if known is not x else None), known

    def jvp(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return p[0].new_zeros(len(saved), p[0].shape[1])

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        v = v if self.module.mode == "sum" else v / self._sizes(saved)
        return super().grads(p, saved, v.unsqueeze(1).expand(*saved.shape, v.shape[-1]))

    def _counts(self, x: Tensor) -> Tensor:
        """Whether each integer is counted."""
        pad = self.module.padding_idx
        return torch.ones_like(x, dtype=torch.bool) if pad is None else x != pad

    def _sizes(self, x: Tensor) -> Tensor:
        """How many integers of a sample count, at least 1: the sum over none is zero, and so is their mean."""
        return self._counts(x).sum(1, keepdim=True).clamp_min(1)


def has_closed_form(module: Any) -> bool:
    """Whether an embedding is a plain look-up: max_norm rewrites the table, scale_grad_by_freq changes the gradient,
    and a maximum is no sum."""
    plain = module.max_norm is None and not module.scale_grad_by_freq
    if isinstance(module, nn.EmbeddingBag):
        return plain and module.mode in ("sum", "mean") and not module.include_last_offset
    return plain


def _in_range(x: Tensor, table: Tensor) -> Tensor:
    """The nearest integers that the table has on a GPU, x itself elsewhere."""
    return x.clamp(0, len(table) - 1) if x.is_cuda else x


def _marked(y: Tensor, known: Tensor | None) -> Tensor:
    """y, NaN where it is not known."""
    return y if known is None else torch.where(known, y, torch.nan)
