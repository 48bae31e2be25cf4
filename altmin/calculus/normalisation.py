"""Layer and batch norm, by torch's own kernels."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from altmin.calculus.base import Params, Saved, Weighted
from altmin.calculus.context import LOCAL, Context

ONLY_INPUT, ONLY_PARAMETERS, ALL = (True, False, False), (False, True, True), (True, True, True)
Optional = Tensor | None


class Normalised(NamedTuple):
    """An input, its means, and 1 / sqrt(var + eps), of the shapes in which the kernels have them. context: of the
    pass."""

    x: Tensor
    mean: Tensor
    inverse: Tensor
    context: Context = LOCAL


class Normalisation(Weighted):
    """x̂ = (x - mean) / sqrt(var + eps), y = x̂ * weight + bias, as layer and batch norm have in common.

    With m entries to a mean, J = weight * P, where P = (I - 1 1^T / m - x̂ x̂^T / m) / sqrt(var + eps) is symmetric.
    fixed: mean and var do not depend on x, and P = I / sqrt(var + eps).
    """

    fixed = False

    def kernel(self, saved: Normalised, v: Tensor, weight: Optional, mask: tuple[bool, ...]) -> Any:
        """Return the gradients of <v, weight * x̂ + bias> by x, weight and bias, those that the mask selects."""
        raise NotImplementedError

    def across(self, t: Tensor, x: Tensor) -> Tensor:
        """Return a mean or the weight in a shape that broadcasts against x."""
        return t

    def vjp(self, p: Params, saved: Normalised, v: Tensor) -> Tensor:
        g: Tensor = self.kernel(saved, v, p[0] if p else None, ONLY_INPUT)[0]
        return g

    def jvp(self, p: Params, saved: Normalised, u: Tensor) -> Tensor:
        Pu: Tensor = self.kernel(saved, u, None, ONLY_INPUT)[0]
        return Pu * p[0] if p else Pu

    def grads(self, p: Params, saved: Normalised, v: Tensor) -> Params:
        grads = self.kernel(saved, v, p[0], ONLY_PARAMETERS)[1:] if p else ()
        return tuple(grads[: len(p)])

    def vjp_and_grads(self, p: Params, saved: Normalised, v: Tensor) -> tuple[Tensor, Params]:
        if not p:
            return self.vjp(p, saved, v), ()
        g, *grads = self.kernel(saved, v, p[0], ALL)
        return g, tuple(grads[: len(p)])

    def input(self, saved: Normalised) -> Tensor:
        return saved.x


def _pair(p: Params) -> tuple[Optional, Optional]:
    return (p[0] if p else None), (p[1] if len(p) > 1 else None)


class LayerNorm(Normalisation):
    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        m = self.module
        y, mean, inverse = torch.ops.aten.native_layer_norm(x, m.normalized_shape, *_pair(p), m.eps)
        return y, Normalised(x, mean, inverse, context=context)

    def kernel(self, saved: Normalised, v: Tensor, weight: Optional, mask: tuple[bool, ...]) -> Any:
        bias = weight if mask[2] else None  # only its shape is read
        return torch.ops.aten.native_layer_norm_backward(
            v, saved.x, self.module.normalized_shape, saved.mean, saved.inverse, weight, bias, mask
        )


class BatchNorm(Normalisation):
    """In training a sample sees the others through the mean; in evaluation it is affine, unit by unit. Where samples
    are spread over ranks, means are those of all ranks, and each of forward, vjp and jvp takes one sum."""

    @property
    def mixes_samples(self) -> bool:  # type: ignore[override]
        return self.module.training or self.module.running_mean is None

    @property
    def fixed(self) -> bool:  # type: ignore[override]
        return not self.mixes_samples

    def forward(self, p: Params, x: Tensor, context: Context = LOCAL) -> tuple[Tensor, Saved]:
        """Return y and what is saved. ValueError in training for a single value per channel."""
        m = self.module
        if self.mixes_samples and context.count(x.numel()) == x.shape[1]:
            raise ValueError(
                "batch norm in training needs more than one value per channel, given a batch of one; "
                "use larger batches, or model.eval() to train with fixed statistics"
            )
        if self.fixed or context.shard:
            of = (m.running_mean, m.running_var) if self.fixed else moments(x, context.sum, context)
            mean, var = (t.to(x.dtype) for t in of)
            y = F.batch_norm(x, mean, var, *_pair(p), False, eps=m.eps)
            return y, Normalised(x, mean, (var + m.eps).rsqrt(), context=context)
        y, mean, inverse = torch.ops.aten.native_batch_norm(x, *_pair(p), None, None, True, 0.0, m.eps)
        return y, Normalised(x, mean, inverse, context=context)

    def replay(self, p: Params, saved: Normalised, x: Tensor) -> tuple[Tensor, Saved]:
        return self.forward(p, x, saved.context)

    def kernel(self, saved: Normalised, v: Tensor, weight: Optional, mask: tuple[bool, ...]) -> Any:
        x, mean, inverse, *_ = saved
        if self.fixed:
            vjp = v * self.across(inverse if weight is None else weight * inverse, x)
            xhat, dims = (x - self.across(mean, x)) * self.across(inverse, x), [0, *range(2, x.ndim)]
            return vjp, *(((v * xhat).sum(dims), v.sum(dims)) if mask[1] else ())
        if saved.context.shard:
            return self._kernel_of_ranks(saved, v, weight, mask)
        return torch.ops.aten.native_batch_norm_backward(
            v, x, weight, None, None, mean, inverse, True, self.module.eps, mask
        )

    def _kernel_of_ranks(self, saved: Normalised, v: Tensor, weight: Optional, mask: tuple[bool, ...]) -> Any:
        """Return `kernel`'s gradients; those of weight and bias are of this rank's rows."""
        x, mean, inverse, *_ = saved
        _, product, total = torch.ops.aten.native_batch_norm_backward(
            v, x, torch.ones_like(mean), None, None, mean, inverse, True, self.module.eps, ONLY_PARAMETERS
        )
        if not mask[0]:
            return None, product, total
        count = saved.context.count(v.numel()) // v.shape[1]
        along, mean_v = (self.across(t / count, x) for t in saved.context.sum(product, total))
        xhat = (x - self.across(mean, x)) * self.across(inverse, x)
        scale = inverse if weight is None else weight * inverse
        return (v - mean_v - xhat * along) * self.across(scale, x), product, total

    def across(self, t: Tensor, x: Tensor) -> Tensor:
        return t.view(-1, *[1] * (x.ndim - 2))

    def jvp(self, p: Params, saved: Normalised, u: Tensor) -> Tensor:
        return self.vjp(p, saved, u)  # the weight is one number for a mean, so J is symmetric

    def kept(self, saved: Normalised) -> Any:
        """Return 1 / sqrt(var + eps) and the mean of every channel, and the number of values in each mean."""
        if self.fixed or self.module.running_mean is None:
            return None
        return saved.inverse, saved.mean, saved.context.count(saved.x.numel()) // saved.x.shape[1]

    def checked(self, values: Any) -> list[Tensor]:
        return [values[0].reciprocal()]

    def commit(self, values: Any) -> None:
        m, (inverse, mean, count) = self.module, values
        m.num_batches_tracked += 1
        weight = 1 / float(m.num_batches_tracked) if m.momentum is None else m.momentum
        var = inverse.pow(-2).sub_(m.eps).clamp_min_(0)
        m.running_mean.mul_(1 - weight).add_(mean, alpha=weight)
        m.running_var.mul_(1 - weight).add_(var, alpha=weight * count / (count - 1))


def moments(x: Tensor, total: Callable[..., Sequence[Tensor]], context: Context) -> tuple[Tensor, Tensor]:
    """Return mean and variance of every channel (dimension 1) over the rows of all ranks, in float64, where the
    difference of two large sums is still exact. total: sums over ranks, as `context.sum`."""
    dims = [0, *range(2, x.ndim)]
    wide = x.double()
    first, square = total(wide.sum(dims), wide.square().sum(dims))
    count = context.count(x.numel()) // x.shape[1]
    mean = first / count
    return mean, (square / count - mean * mean).clamp_min(0)
