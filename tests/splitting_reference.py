"""ADMM and BCD on a split network in their plainest form, in float64, from the papers' formulas, to compare with.

Minimisations are brute force: grids, torch's L-BFGS, and `lstsq` of stacked systems.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

F64 = torch.float64


def by_grid(cost: Callable[[Tensor], Tensor], shape: tuple[int, ...], reach: float = 50.0) -> Tensor:
    """For every entry the argument of the least cost; cost takes (points, *shape) and returns as many numbers."""
    centre, points = torch.zeros(shape, dtype=F64), torch.linspace(-1, 1, 4001, dtype=F64)
    for _ in range(4):
        tried = centre + reach * points.reshape(-1, *[1] * len(shape))
        centre = tried.gather(0, cost(tried).argmin(0, keepdim=True))[0]
        reach /= 500
    return centre


def by_lbfgs(cost: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """The argument of the least of a smooth convex function."""
    z = start.detach().clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [z], max_iter=2000, tolerance_grad=1e-13, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = cost(z)
        value.backward()
        return value

    optimizer.step(closure)
    return z.detach()


def least_squares(a: Tensor, z: Tensor, ridge: float, proximal: float, old: Tensor) -> Tensor:
    """[W, b] of the least |z - W a - b|^2 + ridge |[W, b]|^2 + proximal |[W, b] - old|^2."""
    ones = torch.ones(len(a), 1, dtype=F64)
    eye = torch.eye(a.shape[1] + 1, dtype=F64)
    rows = torch.cat([torch.cat([a, ones], 1), ridge**0.5 * eye, proximal**0.5 * eye])
    right = torch.cat([z, 0 * eye[:, :1] * old.mT, proximal**0.5 * old.mT])
    return torch.linalg.lstsq(rows, right).solution.mT


class Reference:
    """A net of Linear layers and one activation. beta, gamma, alpha: of every layer; without halves, as ADMM has them.

    kind "admm": extra is the multiplier. kind "bcd": extra is the output V_N.
    """

    def __init__(self, model: nn.Sequential, x: Tensor, y: Tensor, kind: str, options: dict[str, Any]):
        linears = [m for m in model if isinstance(m, nn.Linear)]
        self.h = next(m for m in model if not isinstance(m, nn.Linear | nn.Flatten))
        self.kind, self.x, self.o = kind, x, options
        self.Y = nn.functional.one_hot(y, linears[-1].out_features).to(F64)
        self.W = [torch.cat([m.weight, m.bias.unsqueeze(1)], 1).detach() * options["start"] for m in linears]
        self.L = len(linears)
        self.z: list[Tensor] = []
        self.a = [x]
        for l in range(self.L):
            self.z.append(self.linear(l))
            self.a.append(self.h(self.z[-1]))
        self.a.pop()
        self.extra = torch.zeros_like(self.Y) if kind == "admm" else self.z[-1].clone()
        self.done = 0

    def linear(self, l: int) -> Tensor:
        return self.a[l] @ self.W[l][:, :-1].mT + self.W[l][:, -1]

    def loss(self, z: Tensor) -> Tensor:
        if self.o["loss"] == "cross-entropy":
            return -(self.Y * z.log_softmax(1)).sum()
        if self.o["loss"] == "hinge":
            return (self.Y * (1 - z).clamp_min(0) + (1 - self.Y) * z.clamp_min(0)).sum()
        return 0.5 * (z - self.Y).square().sum()

    def objective(self) -> Tensor:
        total = torch.zeros((), dtype=F64)
        for l in range(self.L):
            gap = self.z[l] - self.linear(l)
            total += self.o["beta"][l] * (gap.square().sum() + self.o["ridge"] * len(self.x) * self.W[l].square().sum())
            if l < self.L - 1:
                total += self.o["gamma"][l] * (self.a[l + 1] - self.h(self.z[l])).square().sum()
        if self.kind == "admm":
            return total + self.loss(self.z[-1]) + (self.extra * (self.z[-1] - self.linear(self.L - 1))).sum()
        return total + self.loss(self.extra) + self.o["gamma"][-1] * (self.extra - self.z[-1]).square().sum()

    def output(self) -> None:
        m, z, extra = self.linear(self.L - 1), self.z[-1], self.extra
        beta, gamma, alpha = (self.o[name][-1] for name in ("beta", "gamma", "alpha"))
        if self.kind == "admm":
            self.z[-1] = by_lbfgs(lambda t: self.loss(t) + (t * extra).sum() + beta * (t - m).square().sum(), z)
            if self.done >= self.o["warmup"]:
                self.extra = extra + beta * (self.z[-1] - m)
            return
        self.extra = by_lbfgs(
            lambda t: self.loss(t) + gamma * (t - z).square().sum() + alpha * (t - extra).square().sum(), extra
        )
        v = self.extra
        self.z[-1] = by_lbfgs(lambda t: gamma * (v - t).square().sum() + beta * (t - m).square().sum(), z)

    def activation(self, l: int) -> None:
        """a_l, l = 1..L-1: (beta W^T W + gamma I)^-1 (beta W^T (z - b) + gamma h(z_l)), with beta, W, z above it."""
        W, b = self.W[l][:, :-1], self.W[l][:, -1]
        beta, gamma = self.o["beta"][l], self.o["gamma"][l - 1]
        matrix = beta * W.mT @ W + gamma * torch.eye(W.shape[1], dtype=F64)
        right = beta * (self.z[l] - b) @ W + gamma * self.h(self.z[l - 1])
        self.a[l] = torch.linalg.solve(matrix, right.mT).mT

    def preactivation(self, l: int) -> None:
        """z_l, l = 1..L-1, entry by entry."""
        m, a, old = self.linear(l - 1), self.a[l], self.z[l - 1]
        beta, gamma, alpha = (self.o[name][l - 1] for name in ("beta", "gamma", "alpha"))
        self.z[l - 1] = by_grid(
            lambda t: gamma * (a - self.h(t)) ** 2 + beta * (t - m) ** 2 + alpha * (t - old) ** 2, tuple(a.shape)
        )

    def weights(self) -> None:
        for l in range(self.L):
            proximal = self.o["proximal"] / self.o["beta"][l]
            self.W[l] = least_squares(self.a[l], self.z[l], self.o["ridge"] * len(self.x), proximal, self.W[l])

    def iterate(self) -> list[float]:
        """One iteration; the objective before it and after every block."""
        values = [self.objective().item()]
        blocks: list[Callable[[], None]] = [self.output]
        for l in range(self.L - 1, 0, -1):
            blocks += [lambda l=l: self.activation(l), lambda l=l: self.preactivation(l)]  # type: ignore[misc]
        for block in [*blocks, self.weights]:
            block()
            values.append(self.objective().item())
        self.done += 1
        return values
