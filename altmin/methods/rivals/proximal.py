"""Closed forms for one variable of a split network: pre-activations entry by entry, outputs sample by sample."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from altmin.common.errors import unknown

NEWTON_STEPS = 50


class Clamp(NamedTuple):
    """The activation h(z) = min(max(slope z + offset, low), high), with slope > 0. ReLU has high = inf."""

    slope: float
    offset: float
    low: float
    high: float

    def __call__(self, z: Tensor) -> Tensor:
        if self.high == math.inf and (self.slope, self.offset, self.low) == (1.0, 0.0, 0.0):
            return z.relu()
        return (self.slope * z + self.offset).clamp(self.low, self.high)


CLAMPS: dict[type[nn.Module], Callable[[nn.Module], Clamp]] = {
    nn.ReLU: lambda m: Clamp(1.0, 0.0, 0.0, math.inf),
    nn.ReLU6: lambda m: Clamp(1.0, 0.0, 0.0, 6.0),
    nn.Hardsigmoid: lambda m: Clamp(1 / 6, 0.5, 0.0, 1.0),
    nn.Hardtanh: lambda m: Clamp(1.0, 0.0, float(m.min_val), float(m.max_val)),  # type: ignore[arg-type]
}
"""Functions that make a `Clamp` of a module, by kind of activation."""


def clamp_of(activation: nn.Module) -> Clamp:
    """Return the activation as a `Clamp`; its kind is one of `CLAMPS`.

    >>> clamp_of(nn.Hardtanh(-2, 2))
    Clamp(slope=1.0, offset=0.0, low=-2.0, high=2.0)
    """
    return CLAMPS[type(activation)](activation)


def preactivations(h: Clamp, a: Tensor, m: Tensor, gamma: float, beta: float) -> Tensor:
    """Return z of the least gamma (a - h(z))^2 + beta (z - m)^2, by entry, over all pieces of h; beta, gamma > 0."""
    left, right = (h.low - h.offset) / h.slope, (h.high - h.offset) / h.slope
    mixed = (gamma * h.slope * (a - h.offset) + beta * m) / (gamma * h.slope**2 + beta)
    best = mixed.clamp_(left, right)
    least = gamma * (a - h(best)).square() + beta * (best - m).square()
    for z in (m.clamp_max(left), *([] if right == math.inf else [m.clamp_min(right)])):
        cost = gamma * (a - h(z)).square() + beta * (z - m).square()
        best, least = torch.where(cost < least, z, best), torch.minimum(cost, least)
    return best


Prox = Callable[[Tensor, float, Tensor, Tensor], Tensor]
"""prox(v, weight, targets, start): for every sample the z of the least loss(z) + weight / 2 |z - v|^2, for one-hot
targets of its shape (samples, classes); start is where an iteration may begin."""


def _prox_cross_entropy(v: Tensor, weight: float, targets: Tensor, start: Tensor) -> Tensor:
    """Damped Newton steps, all samples at once.

    With p = softmax(z) the Hessian is diag(p + weight) - p p^T, inverted by Sherman and Morrison's formula. Along a
    direction d whose entries spread over r = max d - min d the second derivative grows at most like e^(r t), so that
    the step log(1 + r) / r lowers the objective from anywhere; it tends to 1 as r tends to 0. The iteration begins at
    start or at v, whichever costs less, and ends with a step so small that its square is a rounding error.
    """
    v, y, z = (t.mT.contiguous() for t in (v, targets, start))  # along columns: many times faster for few classes
    cost = -(y * z.log_softmax(0)).sum(0) + weight / 2 * (z - v).square().sum(0)
    z = torch.where(cost < -(y * v.log_softmax(0)).sum(0), z, v)
    small = math.sqrt(torch.finfo(z.dtype).eps)
    for _ in range(NEWTON_STEPS):
        p = z.softmax(0)
        gradient = torch.add(p - y, z - v, alpha=weight)
        diagonal = p + weight
        u, w = gradient / diagonal, p / diagonal
        # 1 - <p, p / diagonal>, written without the difference
        d = torch.addcmul(u, w, (p * u).sum(0) / w.sum(0).mul_(weight)).neg_()
        low, high = d.aminmax(dim=0)
        r = (high - low).clamp_min_(small)  # not 0, and then log(1 + r) / r is 1 to rounding
        z = torch.addcmul(z, d, r.log1p() / r)
        if not bool((torch.maximum(high, -low) > small).any()):
            break
    return z.mT.contiguous()


def _prox_hinge(v: Tensor, weight: float, targets: Tensor, start: Tensor) -> Tensor:
    """Return the prox of max(1 - z, 0) for the entry of the class, max(z, 0) for the others."""
    up = torch.maximum(v, (v + 1 / weight).clamp_max(1))
    down = torch.minimum(v, (v - 1 / weight).clamp_min(0))
    return torch.where(targets > 0, up, down)


def _prox_squared(v: Tensor, weight: float, targets: Tensor, start: Tensor) -> Tensor:
    return (targets + weight * v) / (1 + weight)


LOSSES: dict[str, Prox] = {"cross-entropy": _prox_cross_entropy, "hinge": _prox_hinge, "squared": _prox_squared}
"""The prox of a loss by its name: -log softmax(z)_y, the hinge of every entry, and 1/2 |z - y|^2."""


def output_prox(name: str) -> Prox:
    """Return the prox of the loss of that name; ValueError if there is none."""
    if name not in LOSSES:
        raise unknown("loss", name, LOSSES)
    return LOSSES[name]
