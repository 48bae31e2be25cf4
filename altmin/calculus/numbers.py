"""Numbers of a whole mini-batch, such as squares and step lengths: tensors without dimensions, or vectors of them."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

TINY = 1e-30
"""Squares below this count as zero: a code whose gradient is that small does not move."""


def safe_div(a: Tensor, b: Tensor) -> Tensor:
    """a / b for b >= 0, where b below `TINY` counts as `TINY`."""
    return a / b.clamp_min(TINY)


def all_finite(t: Tensor) -> Tensor:
    """Whether all entries are finite, by their sum, which is much faster than a look at each: a tensor. A sum that
    overflows counts as not finite.

    >>> all_finite(torch.tensor([1.0, 2.0])), all_finite(torch.tensor([1.0, torch.nan]))
    (tensor(True), tensor(False))
    """
    return t.sum().isfinite()


def select(ok: Tensor, new: Any, old: Any) -> Any:
    """new where ok, else old, of whole trees of tensors of one form. What is not a tensor comes from new; an object
    with a method `either` is replaced by what that returns, which must hold for both."""
    if isinstance(new, Tensor):
        return torch.where(ok, new, old)
    if isinstance(new, list | tuple) and not isinstance(new, torch.Size):
        parts: Iterator[Any] = (select(ok, a, b) for a, b in zip(new, old, strict=True))
        return type(new)(*parts) if hasattr(new, "_fields") else type(new)(parts)
    return new.either() if hasattr(new, "either") else new
