"""Codes in time from the objective, in float64, one sample and one step of time at a time.

c_t = U x_t + W tanh(c_{t-1}) + b,   z_t = V tanh(c_t),   output = R relu(z_1..z_T) + r,   tanh(c_0) = 0.

Sequences of a batch may have different lengths. Once every z_t is asked to move by -m delta_t, the codes at c_t - m v_t
meet phi(v) = 1/2 sum |delta_t - V q_t|^2 + 1/2 sum |v_t - W q_{t-1}|^2 with q_t = (tanh(c_t) - tanh(c_t - m v_t)) / m.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass
class Elman:
    """The weights of an Elman network."""

    U: Tensor
    W: Tensor
    b: Tensor
    V: Tensor
    R: Tensor
    r: Tensor

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """c_1..c_T (T, hidden) and z (T, k) of one sequence."""
        codes: list[Tensor] = []
        for x_t in x:
            codes.append(self.cell(x_t, codes[-1] if codes else None))
        return torch.stack(codes), torch.stack([self.V @ torch.tanh(c) for c in codes])

    def cell(self, x_t: Tensor, before: Tensor | None) -> Tensor:
        c = self.U @ x_t + self.b
        return c if before is None else c + self.W @ torch.tanh(before)

    def output(self, z: Tensor) -> Tensor:
        """A short sequence is followed by zeros."""
        z = z.flatten().clamp_min(0)
        return self.R[:, : len(z)] @ z + self.r

    def f(self, xs: list[Tensor], y: Tensor, codes: list[Tensor], zs: list[Tensor], mu: float) -> Tensor:
        """The objective of a batch over the number of its sequences."""
        total = torch.zeros((), dtype=torch.float64)
        for x, label, c, z in zip(xs, y, codes, zs, strict=True):
            total = total + F.cross_entropy(self.output(z), label)
            for t in range(len(x)):
                total = total + mu * (z[t] - self.V @ torch.tanh(c[t])).square().sum()
                total = total + mu * (c[t] - self.cell(x[t], c[t - 1] if t else None)).square().sum()
        return total / len(xs)


def of(model: torch.nn.Sequential) -> Elman:
    """The weights of `altmin.models.elman`."""
    cell, readout, classifier = model[0], model[1], model[-1]
    tensors = cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0, readout.weight, classifier.weight, classifier.bias
    return Elman(*(t.detach().double().clone() for t in tensors))


@dataclass
class Moved:
    """Of every sequence v, v_t - W q_{t-1} and the first direction; the length a of v over that direction's."""

    v: list[Tensor]
    left: list[Tensor]
    first: list[Tensor]
    a: float


@dataclass
class CodesInTime:
    """How codes in time move. rounds None: the sequential sweep."""

    rounds: int | None = 1
    share: float = 0.1

    def update(self, net: Elman, codes: list[Tensor], deltas: list[Tensor], m: float) -> Moved:
        """The move of a batch whose readout is asked to move by -m delta."""
        zero = [torch.zeros_like(c) for c in codes]
        at = [parts(net, c, m, v_i, d) for c, v_i, d in zip(codes, zero, deltas, strict=True)]
        first = [
            torch.stack([self.direction(net, c, r, t, self.rounds or len(c)) for t in range(len(c))])
            for c, (r, _) in zip(codes, at, strict=True)
        ]
        slopes = [
            torch.autograd.functional.jvp(lambda u, c=c, d=d: parts(net, c, m, u, d), v_i, g_i)[1]
            for c, d, v_i, g_i in zip(codes, deltas, zero, first, strict=True)
        ]
        down = -sum(float((r * dr).sum() + (e * de).sum()) for (r, e), (dr, de) in zip(at, slopes, strict=True))
        bend = norm([dr for dr, _ in slopes]) ** 2 + norm([de for _, de in slopes]) ** 2
        a = min(max(down, 0.0) / bend, self.share * norm(deltas) / norm([dr for dr, _ in slopes]))
        v = [a * g_i for g_i in first]
        if phi(net, codes, m, v, deltas) > phi(net, codes, m, zero, deltas) * (1 + 1e-14):
            v, a = zero, 0.0
        left = [parts(net, c, m, v_i, d)[1] for c, v_i, d in zip(codes, v, deltas, strict=True)]
        return Moved(v, left, first, a)

    def direction(self, net: Elman, c: Tensor, r: Tensor, t: int, rounds: int) -> Tensor:
        """Backprop through time from step t, truncated: (1 - h_t^2) (V^T r_t + W^T what step t + 1 has)."""
        asked = net.V.T @ r[t]
        if rounds > 1 and t + 1 < len(c):
            asked = asked + net.W.T @ self.direction(net, c, r, t + 1, rounds - 1)
        return (1 - torch.tanh(c[t]) ** 2) * asked


def parts(net: Elman, c: Tensor, m: float, v: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    """delta_t - V q_t and v_t - W q_{t-1} of one sequence."""
    q = (torch.tanh(c) - torch.tanh(c - m * v)) / m
    above = torch.stack([delta[t] - net.V @ q[t] for t in range(len(c))])
    return above, torch.stack([v[t] - net.W @ q[t - 1] if t else v[t] for t in range(len(c))])


def phi(net: Elman, codes: list[Tensor], m: float, v: list[Tensor], deltas: list[Tensor]) -> float:
    return sum(
        float(above.square().sum() + left.square().sum()) / 2
        for above, left in (parts(net, *each) for each in zip(codes, [m] * len(codes), v, deltas, strict=True))
    )


def norm(tensors: list[Tensor]) -> float:
    return float(sum(t.square().sum() for t in tensors)) ** 0.5
