"""Outputs with a label for each sample, or for each place of a sequence or an image."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

LossFunction = Callable[[Any, Tensor], Tensor]
"""A user's loss: (output, y) -> scalar, the mean over the batch; output is what the model returns."""


def class_axis(output: Tensor, y: Tensor) -> int:
    """Return which dimension of an output counts the classes, if y has a label for each of its places.

    The last for outputs (samples, time, classes), as transformers give them, the second for outputs (samples, classes,
    ...), as torch's losses and convolutions have them. Numbers of samples are not compared. Raises ValueError if y
    fits neither, or both.

    >>> class_axis(torch.zeros(8, 5, 3), torch.zeros(8, 5)), class_axis(torch.zeros(8, 3, 5), torch.zeros(8, 5))
    (2, 1)
    """
    places = y.shape[1:]
    fitting = [axis for axis in {1, output.ndim - 1} if output.ndim > 1 and without(output, axis)[1:] == places]
    if len(fitting) == 1:
        return fitting[0]
    raise ValueError(
        "cross-entropy takes outputs (samples, classes, ...) with labels (samples, ...), or (samples, time, classes) "
        f"with labels (samples, time), given {tuple(output.shape)} and {tuple(y.shape)}; where these fit both, give a "
        "function, such as lambda o, y: torch.nn.functional.cross_entropy(o.flatten(0, -2), y.flatten())"
    )


def as_rows(x: Tensor, axis: int) -> Tensor:
    """Return (places of all samples, classes): one row for each label. axis: where the classes are."""
    return x.movedim(axis, -1).flatten(0, -2)


def from_rows(rows: Tensor, shape: torch.Size, axis: int) -> Tensor:
    """Return the x of this shape whose `as_rows` are these."""
    return rows.unflatten(0, shape[:axis] + shape[axis + 1 :]).movedim(-1, axis)


def without(x: Tensor, axis: int) -> torch.Size:
    return x.shape[:axis] + x.shape[axis + 1 :]


class CrossEntropyLoss(nn.CrossEntropyLoss):
    """torch's cross-entropy, which also takes outputs (samples, time, classes) with labels (samples, time)."""

    def forward(self, output: Tensor, y: Tensor) -> Tensor:
        if output.ndim > 2 and not y.is_floating_point():
            output, y = as_rows(output, class_axis(output, y)), y.flatten()
        return super().forward(output, y)


def by_label(loss: LossFunction) -> LossFunction:
    """Return the loss; if it is torch's cross-entropy, this module's, which shares its attributes and so has its
    present options."""
    if type(loss) is not nn.CrossEntropyLoss:
        return loss
    shared = CrossEntropyLoss.__new__(CrossEntropyLoss)
    object.__setattr__(shared, "__dict__", vars(loss))
    return shared
