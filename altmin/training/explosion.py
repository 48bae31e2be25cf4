"""Detection of a loss that explodes but stays finite, and advice against it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from altmin.common.errors import Diverged
from altmin.common.inputs import Batch, tensors_of

FACTOR = 1e3


@dataclass
class LossWatch:
    """Follows the losses of a run, one for each batch. `reference` is the largest of 1, the absolute first loss, and
    the scale of those batches whose loss was suspicious: with their targets or inputs a loss may rise too.

    >>> watch = LossWatch()
    >>> [watch.explodes(loss, lambda: 1.0) for loss in (0.5, 2e3, 0.4, 2e3, 900.0)]  # a spike, then an explosion
    [False, False, False, False, True]
    """

    reference: float = 0.0
    last: float = 0.0

    def explodes(self, loss: float, scale: Callable[[], float]) -> bool:
        """Return whether the geometric mean of this loss and the one before, each at least the reference, is above 1000
        times the reference. scale: a function that returns `scale_of` the batch."""
        self.reference = self.reference or max(1.0, abs(loss))
        if loss > FACTOR * self.reference:
            self.reference = max(self.reference, scale())
        ratios = [max(1.0, value / self.reference) for value in (self.last, loss)]
        self.last = loss
        return math.prod(ratios) > FACTOR**2


def scale_of(x: Batch, y: Tensor) -> float:
    """The largest square of a batch's targets or the mean square of its inputs, whichever is larger; 0 for integers. A
    sound network has a squared error of about this size at most."""
    squares = [y.double().square().max()] * y.is_floating_point()
    squares += [t.double().square().mean() for t in tensors_of(x) if t.is_floating_point()]
    return max(map(float, squares), default=0.0)


def exploded(loss: float, method: Any, x: Batch, y: Tensor, where: str = "the loss") -> Diverged:
    """The error for a loss of a batch that a method was trained on, with the advice that fits."""
    advice = []
    inputs = [("inputs", t, 10, "") for t in tensors_of(x)]
    for name, t, most, then in (("targets", y, 3, ", and scale outputs back"), *inputs):
        if t.is_floating_point() and (size := float(t.double().square().mean().sqrt())) > most:
            advice.append(f"standardise the {name}, whose root mean square is {size:.3g}{then}")
    rate = getattr(getattr(method, "weights", None), "rate", None)
    if rate is not None:
        advice.append(f"lower the rate of the memory, {rate:g}")
    elif method.optimizer is not None:
        lr = max(float(group["lr"]) for group in method.optimizer.param_groups)
        advice.append(f"lower the learning rate, {lr:g}")
    return Diverged(where, ", or ".join(advice) or "change the method's options", f"exploded to {loss:.3g}")
