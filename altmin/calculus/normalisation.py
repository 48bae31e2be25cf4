"""Layer and batch norm."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from altmin.calculus.base import Map, Params, Saved, shifted
from altmin.calculus.numbers import Number


class Normalisation(Map):
    """x̂ = (x - mean) / sqrt(var + eps), y = x̂ * weight + bias, as layer and batch norm have in common.

    With m entries to a mean, J = weight * (I - 1 1^T / m - x̂ x̂^T / m) / sqrt(var + eps). fixed: mean and var do not
    depend on x, and J = weight / sqrt(var + eps).
    """

    fixed = False

    def dims(self, x: Tensor) -> list[int]:
        """Those over which a mean is taken."""
        raise NotImplementedError

    def shared(self, x: Tensor) -> list[int]:
        """Those along which a parameter is repeated."""
        raise NotImplementedError

    def vjp(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return self._project(saved, self._scale(p, v))

    def jvp(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return self._scale(p, self._project(saved, u))

    def quotient(self, p: Params, saved: Saved, u: Tensor, e: Number) -> tuple[Tensor, Saved]:
        """With v = (var(x) - var(x - e u)) / e, inverse = 1 / sqrt(var + eps) and moved that at x - e u,
        (moved - inverse) / e = v (inverse moved)^2 / (inverse + moved)."""
        if self.fixed:
            return self.jvp(p, saved, u), shifted(saved, u, e)
        dims, (xhat, inverse) = self.dims(saved), self._statistics(saved)
        centred, shift = xhat / inverse, u - u.mean(dims, keepdim=True)
        v = (shift * (2 * centred - e * shift)).mean(dims, keepdim=True)
        moved = (inverse**-2 - e * v).clamp_min(self.module.eps).rsqrt()  # rounding may take away more than var
        change = v * (inverse * moved) ** 2 / (inverse + moved)
        return self._scale(p, shift * moved - centred * change), shifted(saved, u, e)

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        shared = self.shared(saved)
        return ((v * self._statistics(saved)[0]).sum(shared), v.sum(shared))[: len(p)]

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x̂ and 1 / sqrt(var + eps)."""
        if self.fixed:
            mean, var = (q.view(-1, *[1] * (x.ndim - 2)) for q in (self.module.running_mean, self.module.running_var))
        else:
            var, mean = torch.var_mean(x, self.dims(x), unbiased=False, keepdim=True)
        inverse = (var + self.module.eps).rsqrt()
        return (x - mean) * inverse, inverse

    def _project(self, x: Tensor, u: Tensor) -> Tensor:
        dims, (xhat, inverse) = self.dims(x), self._statistics(x)
        if self.fixed:
            return inverse * u
        return inverse * (u - u.mean(dims, keepdim=True) - xhat * (u * xhat).mean(dims, keepdim=True))

    def _scale(self, p: Params, u: Tensor) -> Tensor:
        return p[0].view([1 if dim in self.shared(u) else n for dim, n in enumerate(u.shape)]) * u if p else u


def _pair(p: Params) -> tuple[Tensor | None, Tensor | None]:
    return (p[0] if p else None), (p[1] if len(p) > 1 else None)


class LayerNorm(Normalisation):
    def dims(self, x: Tensor) -> list[int]:
        return list(range(-len(self.module.normalized_shape), 0))

    def shared(self, x: Tensor) -> list[int]:
        return list(range(x.ndim - len(self.module.normalized_shape)))

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        return F.layer_norm(x, self.module.normalized_shape, *_pair(p), self.module.eps), x


class BatchNorm(Normalisation):
    """In training a sample sees the others through the mean; in evaluation it is affine, unit by unit."""

    @property
    def couples(self) -> bool:  # type: ignore[override]
        return self.module.training or self.module.running_mean is None

    @property
    def fixed(self) -> bool:  # type: ignore[override]
        return not self.couples

    def dims(self, x: Tensor) -> list[int]:
        return [0, *range(2, x.ndim)]

    shared = dims

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        """ValueError in training for a single value per channel."""
        m = self.module
        if self.couples and x.numel() == x.shape[1]:
            raise ValueError(
                "batch norm in training needs more than one value per channel, given a batch of one; "
                "use larger batches, or model.eval() to train with fixed statistics"
            )
        mean, var = (None, None) if self.couples else (m.running_mean, m.running_var)
        return F.batch_norm(x, mean, var, *_pair(p), self.couples, eps=m.eps), x

    def kept(self, saved: Saved) -> Any:
        """Variance and mean of every channel."""
        if self.fixed or self.module.running_mean is None:
            return None
        return torch.var_mean(saved, self.dims(saved), unbiased=True)

    def soundness(self, kept: Any) -> Tensor | float:
        return 0 * kept[0].sum()

    def commit(self, kept: Any) -> None:
        m = self.module
        m.num_batches_tracked += 1
        weight = 1 / float(m.num_batches_tracked) if m.momentum is None else m.momentum
        for running, new in zip((m.running_var, m.running_mean), kept, strict=True):
            running.copy_(running.lerp(new, weight))
