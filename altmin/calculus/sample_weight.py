"""Weights of the samples of a mini-batch: a sample of weight w counts as one that stands w times in the batch.

Every code of a mini-batch belongs to one sample. With weights w_t the objective is sum_t w_t f_t, and what is asked of
a code stays that of one copy of its sample. So only sums over samples change, into <u, v> = sum_t w_t <u_t, v_t>:
those of the line searches, of the loss and of the gradients of parameters.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from altmin.calculus.ranks import of_all, summed_numbers
from altmin.common.flags import Scoped

_weights: Scoped[Tensor | None] = Scoped(None)
_total: Scoped[list[float]] = Scoped([])
"""Their sum over all ranks, once it is known."""


@contextmanager
def weighing(w: Tensor | None) -> Iterator[None]:
    """Sums over samples are weighted by w within, in this thread; None: they are not."""
    with _weights.set(w), _total.set([]):
        yield


def weighs() -> bool:
    """Whether sums over samples are weighted here."""
    return _weights.value is not None


def weighed(t: Tensor) -> Tensor:
    """t, of which every row belongs to a sample, times the weights of the samples; t itself where there are none.

    >>> with weighing(torch.tensor([2.0, 0.5])):
    ...     weighed(torch.ones(2, 3)).tolist()
    [[2.0, 2.0, 2.0], [0.5, 0.5, 0.5]]
    """
    w = _weights.value
    return t if w is None else multiplied(t, w)


def multiplied(t: Tensor, w: Tensor) -> Tensor:
    """Every row of t times its weight. ValueError if t has not one row for each."""
    if len(t) != len(w):
        raise ValueError(
            f"sample weights need codes with one row for each of the {len(w)} samples, and a block of this model gives "
            f"{len(t)} rows; repeat samples instead of weighing them (nothing was changed)"
        )
    return t * w.view(-1, *[1] * (t.ndim - 1))


def samples(t: Tensor) -> Any:
    """How many samples the rows of t count as, on all ranks: their number, or the sum of their weights."""
    w = _weights.value
    if w is None:
        return of_all(len(t))
    if not _total.value:
        _total.value.extend(summed_numbers(w.sum().item()))
    return _total.value[0]


def check_weights(w: Any, x: Tensor) -> Tensor:
    """The weights as numbers of the input's type, on its device. ValueError unless there is one for each sample, none
    negative, not all zero on all ranks; TypeError for what is no tensor."""
    if not isinstance(w, Tensor):
        raise TypeError(f"sample_weight is a tensor, given {type(w).__name__}; use torch.as_tensor")
    if w.shape != x.shape[:1]:
        raise ValueError(f"sample_weight has one weight for each of {len(x)} samples, given shape {tuple(w.shape)}")
    sound = bool(w.isfinite().all()) and not bool((w < 0).any())
    if not sound or not summed_numbers(float((w > 0).any()))[0]:
        raise ValueError("sample_weight holds finite weights of at least 0, of which not all are zero")
    return w.to(x.device, x.dtype if x.is_floating_point() else torch.get_default_dtype())
