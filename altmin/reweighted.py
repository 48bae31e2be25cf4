"""Losses of a mini-batch in which samples count differently, or of which others have a part."""

from typing import Any

import torch
from torch import Tensor

from altmin.calculus.ranks import shared, summed
from altmin.losses import Evaluation, Loss


class Weighted(Loss):
    """A loss of weighted samples. Its value is the weighted mean; gradient and Hessian are those of one copy of each
    sample in a batch where it stands w_t times (see `calculus/sample_weight.py`)."""

    def __init__(self, loss: Loss, w: Tensor):
        self.loss, self.w, self.rounding = loss, w, loss.rounding

    def samples(self, output: Tensor) -> Any:
        return self.w.sum().item()

    def terms(self, output: Tensor, y: Any) -> Any:
        return self.w.sum().item()

    def prepare(self, output: Tensor, y: Tensor) -> Any:
        return self.loss.prepare(output, y)

    def at(self, output: Tensor, y: Any) -> Evaluation:
        each, factor = self.loss.at(output, y), len(self.w) / self.w.sum()
        value = self.loss.weighted(output, y, self.w)
        return Evaluation(value, each.delta * factor, lambda q: each.hessian(q) * factor)


class Shared(Loss):
    """A loss of a mini-batch that is spread over ranks. With d_r the number of terms that rank r's mean is of, the
    value is sum_r d_r value_r / sum_r d_r, the same on all ranks; gradient and Hessian are this rank's rows of it.

    It is that of one mini-batch: the numbers of terms and of samples are summed with its first value, in one message,
    and known from then on; every further value is a message of one number."""

    def __init__(self, loss: Loss):
        self.loss, self.rounding = loss, loss.rounding
        self.counts: list[float] | None = None
        """sum_r d_r, and the samples of all ranks."""

    def samples(self, output: Tensor) -> Any:
        if self.loss.adds:
            return self.loss.samples(output)
        if self.counts is not None:
            return self.counts[1]
        return summed(output.new_tensor(self.loss.samples(output), dtype=torch.float64))[0].item()

    def prepare(self, output: Tensor, y: Tensor) -> Any:
        return self.loss.prepare(output, y)

    def at(self, output: Tensor, y: Any) -> Evaluation:
        each = self.loss.at(output, y)
        own = 1.0 if self.loss.adds else self.loss.terms(output, y)
        total = each.value.double() * own
        if self.loss.adds:
            return each._replace(value=summed(total)[0].to(each.value.dtype))
        if self.counts is None:
            total, *counts = summed(torch.stack([total, *total.new_tensor([own, self.loss.samples(output)])]))[0]
            self.counts = torch.stack(counts).tolist()
            if self.counts[0] == 0:
                raise ValueError("no sample of the mini-batch counts: all labels are to be ignored; leave it out")
        else:
            (total,) = summed(total)
        count = self.counts[0]
        factor = own / count
        value = (total / count).to(each.value.dtype)
        return Evaluation(value, each.delta * factor, lambda q: each.hessian(q) * factor)


def of_batch(loss: Loss) -> Loss:
    """The loss as the mini-batch of this thread has it: over all ranks where its samples are spread over some."""
    return loss if shared() is None else Shared(loss)
