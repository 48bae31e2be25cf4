"""Streaming linear discriminant analysis (Hayes and Kanan, 2020): class means and one covariance, sample by sample.

With mu_k the mean of class k, S the scatter within classes, sum_t (z_t - mu_{y_t}) (z_t - mu_{y_t})^T, and

    C = (1 - shrinkage) S / n + shrinkage tr(S / n) / d I,

a sample z is put into the class with the largest  mu_k^T C^-1 z - mu_k^T C^-1 mu_k / 2. That is the rule of Bayes for
normal classes of one covariance, equally frequent. Nothing is learnt by gradients and nothing depends on the order of
the samples, but for rounding.
"""

from typing import Any

import torch
from torch import Tensor, nn

from altmin.common.errors import demand
from altmin.methods.backprop import LossOnly
from altmin.training.samples import Samples


class StreamingLDA:
    """Sets the last layer of `model`, an nn.Linear, to the discriminant of what the layers before it make of a sample;
    those layers stay as they are. Of a linear model that is the input itself. The layer is set at the end of an epoch,
    from the sums that a step updates."""

    optimizer = None

    def __init__(self, model: nn.Sequential, shrinkage: float = 1e-2):
        demand("StreamingLDA", "shrinkage", shrinkage, above=True)
        if shrinkage > 1:
            raise ValueError(f"shrinkage of StreamingLDA lies between 0 and 1, given {shrinkage!r}")
        if not (isinstance(model, nn.Sequential) and isinstance(model[-1], nn.Linear) and model[-1].bias is not None):
            raise ValueError("streaming LDA sets the last layer of an nn.Sequential; end it with an nn.Linear")
        self.model, self.shrinkage = model, shrinkage
        self.features, self.head = model[:-1], model[-1]
        classes, inputs = self.head.weight.shape
        self.counts = self.head.weight.new_zeros(classes)
        self.means = self.head.weight.new_zeros(classes, inputs)
        self.scatter = self.head.weight.new_zeros(inputs, inputs)

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor) -> LossOnly:
        """Updates counts, means and scatter. With n_k samples of class k so far and m_k new ones of mean v_k,
        S grows by their scatter about v_k and by n_k m_k / (n_k + m_k) (v_k - mu_k) (v_k - mu_k)^T."""
        z = self.features(x)
        loss = nn.functional.cross_entropy(self.head(z), y)
        member = nn.functional.one_hot(y, len(self.counts)).to(z.dtype)
        new = member.sum(0)
        total = self.counts + new
        means = member.mT @ z / new.clamp(min=1)[:, None]
        within, between = z - means[y], means - self.means
        weight = self.counts * new / total.clamp(min=1)
        self.scatter += within.mT @ within + (between * weight[:, None]).mT @ between
        self.means += between * (new / total.clamp(min=1))[:, None]
        self.counts = total
        return LossOnly(loss)

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Puts the discriminant into the last layer; a class not seen yet gets the least output of all."""
        C = self.scatter.double() / self.counts.double().sum()
        ridge = self.shrinkage * C.diagonal().mean()
        C = (1 - self.shrinkage) * C + ridge * torch.eye(len(C), dtype=C.dtype, device=C.device)
        weight = torch.linalg.solve(C, self.means.double().mT).mT
        bias = -(weight * self.means).sum(1) / 2
        bias[self.counts == 0] = torch.finfo(self.head.bias.dtype).min
        self.head.weight.copy_(weight)
        self.head.bias.copy_(bias)

    def end_task(self, samples: Samples) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"counts": self.counts, "means": self.means, "scatter": self.scatter}
