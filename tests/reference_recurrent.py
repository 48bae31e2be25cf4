"""Codes in time from the objective, in float64, one sample and one step of time at a time, by autograd.

c_t = U x_t + W tanh(c_{t-1}) + b,   z_t = V tanh(c_t),   output = R relu(z_1..z_T) + r,   tanh(c_0) = 0.
"""

from dataclasses import dataclass

import reference
import torch
from torch import Tensor


@dataclass
class Elman:
    """The weights of an Elman network, for sequences of a given length."""

    U: Tensor
    W: Tensor
    b: Tensor
    V: Tensor
    R: Tensor
    r: Tensor

    def encode(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """c_1..c_T and z of one sequence."""
        codes: list[Tensor] = []
        for x_t in x:
            codes.append(self.cell(x_t, codes[-1] if codes else None))
        return codes, torch.stack([self.V @ torch.tanh(c) for c in codes])[:, 0]

    def cell(self, x_t: Tensor, before: Tensor | None) -> Tensor:
        c = self.U @ x_t + self.b
        return c if before is None else c + self.W @ torch.tanh(before)

    def output(self, z: Tensor) -> Tensor:
        return self.R @ z.clamp_min(0) + self.r

    def f(self, x: Tensor, y: Tensor, codes: list[Tensor], z: Tensor, mu: float) -> Tensor:
        """The objective of one sequence."""
        total = reference.cross_entropy(self.output(z), y)
        for t, c in enumerate(codes):
            total = total + mu * (z[t] - self.V @ torch.tanh(c)).square().sum()
            total = total + mu * (c - self.cell(x[t], codes[t - 1] if t else None)).square().sum()
        return total


def of(model: torch.nn.Sequential, length: int) -> Elman:
    """The weights of `altmin.models.elman`, for sequences of `length` steps."""
    cell, readout, classifier = model[0], model[1], model[-1]
    tensors = cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0, readout.weight, classifier.weight, classifier.bias
    U, W, b, V, R, r = (t.detach().double().clone() for t in tensors)
    return Elman(U, W, b, V, R[:, :length], r)


def bptt(net: Elman, x: Tensor, y: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Gradients of one sequence's loss with respect to c_1..c_T and to (U, W, b, V, R, r)."""
    weights = [w.clone().requires_grad_() for w in (net.U, net.W, net.b, net.V, net.R, net.r)]
    leaf = Elman(*weights)
    codes, z = leaf.encode(x)
    loss = reference.cross_entropy(leaf.output(z), y)
    grads = torch.autograd.grad(loss, [*codes, *weights])
    return list(grads[: len(x)]), list(grads[len(x) :])


def update(
    net: Elman,
    x: Tensor,
    y: Tensor,
    mu: float,
    how: reference.Codes,
    sweep: str,
    rounds: int,
    z_new: Tensor | None = None,
) -> tuple[list[Tensor], Tensor]:
    """The new codes c_1..c_T and z of one sequence; the latter may be given."""
    home, z = net.encode(x)
    z_new = _z(net, z, y, mu, how) if z_new is None else z_new
    if sweep == "sequential":
        new = list(home)
        for t in reversed(range(len(x))):
            asked = new[t + 1] - home[t + 1] if t + 1 < len(x) else None
            new[t] = _step(net, home[t], z_new[t] - z[t], asked, mu, how)
        return new, z_new
    d = [torch.zeros_like(c) for c in home]
    checked = how.steps > 1 or how.l1 > 0  # else only what all steps together do to f is checked
    for _ in range(rounds):
        d = [
            _step(net, home[t], z_new[t] - z[t], d[t + 1] if t + 1 < len(x) else None, mu, how, checked) - home[t]
            for t in range(len(x))
        ]
    if how.lr is None and not how.l1:
        d = _halve_until_lower(net, x, y, home, z_new, d, mu)
    return [c + d_t for c, d_t in zip(home, d, strict=True)], z_new


def _z(net: Elman, z: Tensor, y: Tensor, mu: float, how: reference.Codes) -> Tensor:
    """The last code of a feed-forward net: z below a rectifier and the classifier."""
    identity = torch.eye(len(z), dtype=torch.float64)
    above = reference.Net(
        [identity, net.R],
        [torch.zeros_like(z), net.r],
        [lambda c: c, lambda c: c.clamp_min(0)],
        [False, True],
        [True] * 2,
    )
    return how.update(above, z, y, mu, reference.cross_entropy)[0]


def _step(
    net: Elman, c: Tensor, e: Tensor, n: Tensor | None, mu: float, how: reference.Codes, checked: bool = True
) -> Tensor:
    """One code below tanh and the rows of V and, if another step follows, of W, which are asked to move by e and n."""
    K = net.V if n is None else torch.cat([net.V, net.W])
    asked = e.view(1) if n is None else torch.cat([e.view(1), n])
    block = reference.Net([K, K], [torch.zeros_like(asked)] * 2, [torch.tanh] * 2, [False] * 2, [False] * 2)
    target = K @ torch.tanh(c) + asked

    def above(code: Tensor) -> Tensor:
        return (target - K @ torch.tanh(code)).square().sum() / 2

    if how.lr is None and not checked:
        J = torch.autograd.functional.jacobian(lambda code: K @ torch.tanh(code), c)
        g = J.T @ asked
        curvature = float((J @ g).square().sum() + g.square().sum())
        return c + g * float(g.square().sum()) / curvature if curvature else c
    return how._descend(block, 0, c, above, 1.0, how.l1 / (2 * mu), last=False, loss=None, y=None)


def _halve_until_lower(net, x, y, home, z, d, mu) -> list[Tensor]:
    """Codes that moved together meet in their neighbours' terms: all of a sample's offsets shrink until f is lower."""
    before = net.f(x, y, home, z, mu)
    for _ in range(11):
        if net.f(x, y, [c + d_t for c, d_t in zip(home, d, strict=True)], z, mu) <= before * (1 + 1e-14):
            return d
        d = [d_t / 2 for d_t in d]
    return [torch.zeros_like(d_t) for d_t in d]
