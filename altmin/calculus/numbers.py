"""Numbers of a whole mini-batch, such as squares and step lengths: tensors without dimensions, or columns of them.

A column has an entry for each code. A formula is written once, for one entry; `each` applies it to all:

>>> for numbers in (Floats, Tensors):
...     a, b = (numbers.read(torch.tensor(entries)) for entries in ([1.0, 4.0], [9.0, 2.0]))
...     numbers.column(numbers.each(lambda x, y: numbers.minimum(x, y) + 1, a, b))
[2.0, 3.0]
tensor([2., 3.])
"""

import itertools
import math
import operator
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

TINY = 1e-30
"""Squares below this count as zero: a code whose gradient is that small does not move."""


def safe_div(a: Tensor, b: Tensor) -> Tensor:
    """a / b for b >= 0, where b below `TINY` counts as `TINY`."""
    return a / b.clamp_min(TINY)


class Floats:
    """Columns are lists of floats, for steps whose numbers may be read: a few numbers are computed fastest one by one.

    minimum, maximum, sqrt, where, negate: of single entries, for formulas. each: a formula of every row of columns.
    join: columns one after the other. cumprod: a_1, a_1 a_2, ... flip: from the last to the first. sum: of a column.
    What each, join, cumprod and flip give may be passed on to each other; `column` makes a column of it. read: a vector
    as a column; tensor(column, dtype=...): a column as a vector.
    """

    minimum, maximum, sqrt, negate = min, max, math.sqrt, operator.not_
    each, join, flip = map, itertools.chain, reversed
    cumprod = partial(itertools.accumulate, func=operator.mul)
    column, sum, read, tensor = list, sum, Tensor.tolist, torch.tensor

    @staticmethod
    def where(ok: Any, new: Any, old: Any) -> Any:
        return new if ok else old


class Tensors:
    """Columns are vectors, and a formula is applied to all entries at once. Names as in `Floats`."""

    minimum, maximum, sqrt, negate = torch.minimum, torch.clamp_min, torch.sqrt, torch.logical_not
    sum, where = torch.sum, torch.where

    @staticmethod
    def each(formula: Any, *columns: Tensor) -> Any:
        return formula(*columns)

    @staticmethod
    def join(*columns: Tensor) -> Tensor:
        return torch.cat(columns)

    @staticmethod
    def flip(column: Tensor) -> Tensor:
        return column.flip(0)

    @staticmethod
    def cumprod(column: Tensor) -> Tensor:
        if not 0 < len(column) <= 8:
            return column.cumprod(0)
        found = [column[0]]  # one by one, which a compiler fuses with what comes before and after
        for k in range(1, len(column)):
            found.append(found[-1] * column[k])
        return torch.stack(found)

    @staticmethod
    def column(given: Tensor) -> Tensor:
        return given

    read = column

    @staticmethod
    def tensor(column: Tensor, dtype: torch.dtype) -> Tensor:
        return column


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
