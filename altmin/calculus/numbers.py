"""Numbers of a whole mini-batch, such as squares and step lengths: tensors without dimensions, or columns of them.

A column has an entry for each code. A formula is written once, for one entry; `each` applies it to all:

>>> for numbers in (Floats, Scalars, Tensors):
...     a, b = (numbers.read(torch.tensor(entries)) for entries in ([1.0, 4.0], [9.0, 2.0]))
...     numbers.column(numbers.each(lambda x, y: numbers.minimum(x, y) + 1, a, b))
[2.0, 3.0]
[tensor(2.), tensor(3.)]
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


class Numbers:
    """The operations on columns.

    minimum, maximum, sqrt, where, negate: of single entries, for formulas. each: a formula of every row of columns.
    join: columns one after the other. cumprod: a_1, a_1 a_2, ... flip: from the last to the first. sum: of a column.
    The results of each, join, cumprod and flip may be passed to each other; `column` converts one to a column. read: a
    vector as a column; unbind(tensor(column, dtype=...)): the entries of a column as tensors without dimensions.
    """

    minimum: Any
    maximum: Any
    sqrt: Any
    negate: Any
    where: Any
    each: Any
    join: Any
    cumprod: Any
    flip: Any
    sum: Any
    column: Any
    read: Any
    tensor: Any
    unbind: Any


class Floats(Numbers):
    """Columns are lists of floats, for steps whose numbers may be read: a few are computed fastest one by one."""

    minimum, maximum, sqrt, negate = min, max, math.sqrt, operator.not_
    where = staticmethod(lambda ok, new, old: new if ok else old)
    each, join, flip, column, sum = map, itertools.chain, reversed, list, sum
    cumprod = partial(itertools.accumulate, func=operator.mul)
    read, tensor, unbind = Tensor.tolist, torch.tensor, Tensor.unbind


class Scalars(Numbers):
    """Columns are lists of tensors without dimensions, whose formulas a compiler fuses with what is around them."""

    minimum, maximum, sqrt, negate = torch.minimum, torch.clamp_min, torch.sqrt, torch.logical_not
    where, sum = torch.where, staticmethod(lambda column: sum(column))
    each = staticmethod(lambda formula, *columns: [formula(*row) for row in zip(*columns, strict=True)])
    join = staticmethod(lambda *columns: [entry for column in columns for entry in column])
    flip = staticmethod(lambda column: column[::-1])
    column = unbind = staticmethod(lambda column: column)
    read = staticmethod(lambda vector: list(vector.unbind()))
    tensor = staticmethod(lambda column, dtype: column)

    @staticmethod
    def cumprod(column: Any) -> Any:
        products = column[:1]
        for entry in column[1:]:
            products.append(products[-1] * entry)
        return products


class Tensors(Numbers):
    """Columns are vectors, and a formula is applied to all entries at once."""

    minimum, maximum, sqrt, negate = torch.minimum, torch.clamp_min, torch.sqrt, torch.logical_not
    where, sum = torch.where, torch.sum
    read = column = staticmethod(lambda vector: vector)
    unbind = staticmethod(lambda vector: vector.unbind())
    tensor = staticmethod(lambda vector, dtype: vector)
    each = staticmethod(lambda formula, *columns: formula(*columns))
    join = staticmethod(lambda *columns: torch.cat(columns))
    cumprod = staticmethod(lambda column: column.cumprod(0))
    flip = staticmethod(lambda column: column.flip(0))


def all_finite(t: Tensor) -> Tensor:
    """Whether all entries are finite, by their sum, which is much faster than checking each: a tensor. A sum that
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
