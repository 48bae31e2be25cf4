"""Layer and batch norm."""

import torch
import torch.nn.functional as F
from torch import Tensor

from altmin.calculus.base import Map, Params, Saved


class Normalisation(Map):
    """x̂ = (x - mean) / sqrt(var + eps), y = x̂ * weight + bias, as layer and batch norm have in common.

    With m entries to a mean, J = weight * (I - 1 1^T / m - x̂ x̂^T / m) / sqrt(var + eps).
    """

    def dims(self, x: Tensor) -> list[int]:
        """Those over which a mean is taken."""
        raise NotImplementedError

    def shared(self, x: Tensor) -> list[int]:
        """Those along which a parameter is repeated."""
        raise NotImplementedError

    def pull(self, p: Params, saved: Saved, v: Tensor) -> Tensor:
        return self._project(saved, self._scale(p, v))

    def push(self, p: Params, saved: Saved, u: Tensor) -> Tensor:
        return self._scale(p, self._project(saved, u))

    def move(self, p: Params, saved: Saved, u: Tensor) -> tuple[Tensor, Saved]:
        dims, (xhat, inverse) = self.dims(saved), self._statistics(saved)
        centred, shift = xhat / inverse, u - u.mean(dims, keepdim=True)
        growth = (shift * (2 * centred + shift)).mean(dims, keepdim=True)  # of the variance
        moved = (inverse**-2 + growth).rsqrt()
        change = -growth * (inverse * moved) ** 2 / (inverse + moved)  # moved - inverse
        return self._scale(p, shift * moved + centred * change), saved + u

    def grads(self, p: Params, saved: Saved, v: Tensor) -> Params:
        shared = self.shared(saved)
        return ((v * self._statistics(saved)[0]).sum(shared), v.sum(shared))[: len(p)]

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        var, mean = torch.var_mean(x, self.dims(x), unbiased=False, keepdim=True)
        inverse = (var + self.module.eps).rsqrt()
        return (x - mean) * inverse, inverse

    def _project(self, x: Tensor, u: Tensor) -> Tensor:
        dims, (xhat, inverse) = self.dims(x), self._statistics(x)
        return inverse * (u - u.mean(dims, keepdim=True) - xhat * (u * xhat).mean(dims, keepdim=True))

    def _scale(self, p: Params, u: Tensor) -> Tensor:
        if not p:
            return u
        shape = [1 if dim in self.shared(u) else n for dim, n in enumerate(u.shape)]
        return p[0].view(shape) * u


def _pair(p: Params) -> tuple[Tensor | None, Tensor | None]:
    return (p[0] if p else None), (p[1] if len(p) > 1 else None)


class LayerNorm(Normalisation):
    def dims(self, x: Tensor) -> list[int]:
        return list(range(-len(self.module.normalized_shape), 0))

    def shared(self, x: Tensor) -> list[int]:
        return list(range(x.ndim - len(self.module.normalized_shape)))

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        m = self.module
        return F.layer_norm(x, m.normalized_shape, *_pair(p), m.eps), x


class BatchNorm(Normalisation):
    """In training a sample sees the others through the mean; in evaluation it is affine, unit by unit."""

    @property
    def couples(self) -> bool:  # type: ignore[override]
        return self.module.training or self.module.running_mean is None

    def dims(self, x: Tensor) -> list[int]:
        return [0, *range(2, x.ndim)]

    shared = dims

    def forward(self, p: Params, x: Tensor) -> tuple[Tensor, Saved]:
        m = self.module
        if self.couples and x.numel() == x.shape[1]:
            raise ValueError(
                "batch norm in training needs more than one value per channel, given a batch of one; "
                "use larger batches, or model.eval() to train with fixed statistics"
            )
        mean, var = (None, None) if self.couples else (m.running_mean, m.running_var)
        return F.batch_norm(x, mean, var, *_pair(p), self.couples, 0.0, m.eps), x

    def move(self, p: Params, saved: Saved, u: Tensor) -> tuple[Tensor, Saved]:
        return super().move(p, saved, u) if self.couples else (self.push(p, saved, u), saved + u)

    def commit(self, saved: Saved) -> None:
        m = self.module
        if not self.couples or m.running_mean is None:
            return
        m.num_batches_tracked += 1
        weight = 1 / float(m.num_batches_tracked) if m.momentum is None else m.momentum
        var, mean = torch.var_mean(saved, self.dims(saved), unbiased=True)
        m.running_mean.copy_(m.running_mean.lerp(mean, weight))
        m.running_var.copy_(m.running_var.lerp(var, weight))

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.couples:
            return super()._statistics(x)
        m = self.module
        mean, var = (q.view(-1, *[1] * (x.ndim - 2)) for q in (m.running_mean, m.running_var))
        inverse = (var + m.eps).rsqrt()
        return (x - mean) * inverse, inverse

    def _project(self, x: Tensor, u: Tensor) -> Tensor:
        return super()._project(x, u) if self.couples else self._statistics(x)[1] * u
