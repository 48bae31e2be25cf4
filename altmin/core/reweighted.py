"""Losses of a mini-batch with weighted samples, or one that is spread over ranks."""

from typing import Any

import torch
from torch import Tensor

from altmin.calculus.context import LOCAL, Context
from altmin.core.losses import Evaluation, Loss


class OfBatch(Loss):
    """Loss that wraps another and reweights its samples."""

    def __init__(self, loss: Loss):
        self.loss, self.rounding, self.curves = loss, loss.rounding, loss.curves

    def prepare(self, output: Tensor, y: Tensor, context: Context = LOCAL) -> Any:
        return self.loss.prepare(output, y, context)


class Weighted(OfBatch):
    """A loss of weighted samples. Its value is the weighted mean; gradient and Hessian are those of one copy of each
    sample in a batch where it occurs w_t times."""

    def __init__(self, loss: Loss, w: Tensor):
        super().__init__(loss)
        self.w = w

    def samples(self, output: Tensor) -> Any:
        return self.w.sum().item()

    def at(self, output: Tensor, y: Any) -> Evaluation:
        plain, factor = self.loss.at(output, y), len(self.w) / self.w.sum()
        value = self.loss.weighted(output, y, self.w)
        return Evaluation(value, plain.delta * factor, lambda q: plain.hessian(q) * factor)


class Shared(OfBatch):
    """A loss of a mini-batch that is spread over ranks. With d_r the number of terms in the mean of rank r, the
    value is sum_r d_r value_r / sum_r d_r, the same on all ranks; gradient and Hessian are this rank's rows of it.

    It is that of one mini-batch: the numbers of terms and of samples are summed with its first value, in one message,
    and known from then on; every further value is a message of one number, and a gradient alone needs none."""

    def __init__(self, loss: Loss, context: Context):
        super().__init__(loss)
        self.context, self.size = context, 0.0
        """Number of terms d_r."""
        self.counts: list[float] = []
        """Numbers of terms, sum_r d_r, and of samples of all ranks, once they are known."""

    def samples(self, output: Tensor) -> Any:
        if self.loss.adds:
            return self.loss.samples(output)
        return self.counts[1] if self.counts else self.context.samples(output)

    def at(self, output: Tensor, y: Any) -> Evaluation:
        local = self.loss.at(output, y)
        if self.loss.adds:
            return local._replace(value=self.context.sum(local.value.double())[0].to(local.value.dtype))
        self.size = self.size if self.counts else self.loss.terms(output, y)
        if not self.size:  # the mean of no terms is NaN
            local = Evaluation(torch.zeros_like(local.value), torch.zeros_like(local.delta), torch.zeros_like)
        total = local.value.double() * self.size
        numbers = () if self.counts else (self.size, self.loss.samples(output))
        total, *counts = self.context.sum(total, *map(total.new_tensor, numbers))
        self.counts = self.counts or torch.stack(counts).tolist()
        if self.counts[0] == 0:
            raise ValueError("no sample of the mini-batch counts: all labels are to be ignored; leave it out")
        factor, mean = self.size / self.counts[0], total / self.counts[0]
        return Evaluation(mean.to(local.value.dtype), local.delta * factor, lambda q: local.hessian(q) * factor)

    def delta(self, output: Tensor, y: Any) -> Tensor:
        if self.loss.adds:
            return self.loss.delta(output, y)
        if not self.counts:
            return self.at(output, y).delta
        return self.loss.delta(output, y) * (self.size / self.counts[0]) if self.size else torch.zeros_like(output)


def of_batch(loss: Loss, context: Context) -> Loss:
    """Return the loss of a mini-batch: weighted by sample, over all ranks that have samples."""
    loss = loss if context.weights is None else Weighted(loss, context.weights)
    return loss if context.shard is None else Shared(loss, context)
